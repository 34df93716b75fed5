// ReaderWindow fetches and pushes samples ahead of one reader of a plan, and drops them behind it.
//
// A window lies on the reader's sequence (plan/sequence/timeline.h) and moves with the reader. It has four
// positions, in this order:
//
//   dropped <= reader's safe position <= staged <= fetched
//
// The pages of samples before `dropped` have been dropped again, but for those that stay (keep.cc) or that
// another reader has before it. Samples before `staged` have been pushed, or are left to the reader. Samples
// before `fetched` have been cut into units (staged_unit.h), and the window has asked the cache for the first
// of these, by deadline. Bytes between the reader's high-water mark and `fetched` stay within the budget that
// Staging gives to the window. Fetches complete in any order, pushes happen in the order of the sequence, and
// a chunk stays pinned from its arrival to its push, unless a disk hangs that keeps memory
// (Staging::give_memory_back()).
//
// Samples between the safe position and the high-water mark that were not opened yet are still pushed, before
// all others: another DataLoader worker will open them next. A reader that is faster than the pushes
// overtakes them. Samples that it has opened need not be pushed any more and are skipped, but for a part of a
// stream that it is reading, and a record that it asks for page by page.
//
// If the reader is somewhere else, or the timeline does not go on where the window ends, the window drops the
// pages that it holds and begins anew (restart()). Fetches under way then complete, and nothing is pushed of
// them.
//
// Ranks of a plan share its pages and its ledger, and may be epochs apart. So windows of one plan look at
// each other (staged_elsewhere()): a sample that two of them want at about the same time is pushed for the
// first and dropped by the last, and no sentinel for either.
//
// Positions are absolute, in samples. Bytes are those of whole pages in the page cache; of what is in flight,
// those of memory.
//
// The code is by topics: a turn, and following the reader, is in reader_window.cc; units and filling tiers in
// fetch_ahead.cc; pushes and sentinels in push.cc; pages that the kernel took back in repair.cc; samples that
// stay in keep.cc; room that the window of a stopped reader gives up in make_room.cc.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "plan/run/plan_reader.h"
#include "plan/sequence/timeline.h"
#include "plan/staging/page_ledger.h"
#include "plan/staging/sentinel_chooser.h"
#include "plan/staging/staged_unit.h"
#include "plan/staging/staging_parts.h"

namespace clairfs {

struct BudgetLoad;
struct StagedPlan;

/// Belongs to Staging::step(), which holds no lock while it calls, but for ahead() and reader(): those are
/// for any thread. ahead() takes the tracker's lock, which comes after StagingShared::mutex. Completions of
/// fetches reach units only, so they may come when the window has gone. `parts` and the plan outlive it.
class ReaderWindow {
 public:
  /// `readers` of the plan, this one among them.
  ReaderWindow(StagingParts& parts, StagedPlan& of, std::shared_ptr<PlanReader> follows, size_t readers)
      : parts_(parts), plan_(of), reader_(std::move(follows)), chooser_(readers) {}

  PlanReader& reader() const { return *reader_; }
  const StagedPlan& plan() const { return plan_; }
  /// Samples between the reader's high-water mark and the last one pushed for it.
  uint64_t ahead() const;

  /// One turn, in which it may hold `budget` bytes; true if there is more to do at once. In a plan of records
  /// a window only asks for its units here: all windows of the plan do so before one of them pushes
  /// (push_and_fill()).
  bool serve(uint64_t budget);
  /// The rest of a turn in which the window has asked for units. No effect in other turns, or once more.
  bool push_and_fill();
  /// The plan is gone: drops the pages that were pushed in vain. No sentinel tells of the reader any more.
  void leave();

  /// Bytes of the samples that the reader has before it.
  uint64_t bytes() const { return bytes_; }
  /// Their page cache: all but that of a sample which is left to the reader for its size.
  uint64_t resident_bytes() const { return bytes_ - oversize_bytes_; }
  /// Looks whether the reader has stopped; idle() has the answer.
  void look_whether_idle() { idle_ = has_stopped(); }
  bool idle() const { return idle_; }
  /// Whether an idle reader moved in this turn.
  bool is_back() const { return idle_ && moved_ == parts_.now; }
  /// Bytes of the reader's share that other windows hold. 0 unless the reader goes on for certain and has no
  /// room for its next sample. `load` has the bytes that all windows hold.
  uint64_t lacks(const BudgetLoad& load) const;
  /// Gives up the samples that the reader would come to last: about `most` bytes, as far as one go takes it,
  /// and none of the first `least` ones but those of a sample that reaches beyond them. False if there was
  /// nothing to give up.
  bool give_up(uint64_t least, uint64_t most);

  /// Asks the cache for the unit's bytes; false, and nothing happened, if the bytes in flight leave no room
  /// for them. A window takes no more than its part of that room, so that the ranks of a node get their next
  /// samples at the same time. Records in one chunk, one after the other, take its memory once: `before` is
  /// the unit that was asked for last.
  bool ask(const std::shared_ptr<StagedUnit>& unit, const StagedUnit* before, uint64_t deadline);
  /// Whether it has asked for a unit that it has not pushed yet.
  bool has_asked() const { return asked_ > 0; }
  /// Bytes in flight that these count for.
  uint64_t asked_bytes() const { return asked_bytes_; }
  /// Gives the last of them back. If its fetch is still under way, nothing is pushed of it. REQUIRES:
  /// has_asked().
  void unask_last();

  /// Whether the reader has a use of the sample beyond what it is done with, as far as is known.
  bool comes_again(uint32_t sample) const;

 private:
  // A turn, and following the reader (reader_window.cc).
  void follow_timeline();
  void follow_reader();
  void skip_opened();
  uint64_t read_unseen() const;
  bool opened(uint64_t position) const;
  bool overtaken() const;
  void hand_on(uint64_t position);
  void hold_until(uint64_t position);
  void tell_policy() const;
  void restart(uint64_t position);
  void drop_window(uint64_t from) const;
  bool drop_consumed();
  bool drop_until(uint64_t end, uint64_t most);

  // Fetching ahead, and filling tiers (fetch_ahead.cc).
  bool issue_fetches(uint64_t budget);
  uint64_t cost_of(uint64_t position) const;
  bool unread_before(uint64_t position) const;
  bool staged_elsewhere(uint32_t sample) const;
  std::vector<std::shared_ptr<StagedUnit>> units_of(uint64_t position) const;
  void leave_out_shared_pages(std::vector<std::shared_ptr<StagedUnit>>& units) const;
  void note_left_there(uint64_t position);
  void add_units(uint64_t position, bool skip);
  uint64_t due(uint64_t position) const;
  void pop_unit();
  void forget_units(uint64_t from);
  std::optional<uint32_t> next_to_fill();
  bool fills_enough(uint32_t sample) const;
  bool fill_with(uint32_t sample) const;
  bool fill_tiers();

  // Pushing, and sentinels (push.cc).
  bool push_arrived();
  uint64_t announce();
  bool opened_meanwhile(uint64_t position) const;
  void push(const StagedUnit& unit);
  void choose_sentinel(const StagedUnit& unit);
  bool is_last_to_tell(uint64_t position) const;
  std::optional<PageRange> sentinel_page(uint64_t position, bool nearly) const;
  bool tells(uint64_t position, const PageRange& page, bool nearly) const;
  uint64_t first_of_run(uint64_t position, const PageRange& page) const;
  void leave_open(uint64_t position);
  void leave_open_again();
  void forget_sentinels(uint64_t from, uint64_t before);

  // Pages that the kernel took back (repair.cc).
  bool repair();
  void forget_repairs();
  void notice_losses();
  bool look_for_losses();
  std::optional<bool> is_whole(uint64_t position) const;
  bool push_repairs();

  // Samples that stay, and a reader that has stopped (keep.cc, make_room.cc).
  void keep_or_let_go(uint64_t position);
  uint64_t most_ahead() const;
  bool has_stopped();

  // Constant after construction.
  StagingParts& parts_;
  StagedPlan& plan_;  // whose window it is
  const std::shared_ptr<PlanReader> reader_;

  // Where the reader is, as last seen.
  Timeline timeline_;
  bool started_ = false;
  uint64_t high_water_ = 0;
  uint64_t safe_ = 0;               // everything before has been opened
  std::optional<TimePoint> moved_;  // when it moved last, or was first served
  bool idle_ = false;               // it had stopped when the turn began

  // How far the window has come.
  uint64_t dropped_ = 0;
  uint64_t staged_ = 0;
  uint64_t fetched_ = 0;
  uint64_t held_ = 0;                          // the further of the two: the ledger holds [dropped, held)
  uint64_t pushed_until_ = 0;                  // so far was pushed what the window has given up since
  std::atomic<uint64_t> staged_published_{0};  // for ahead()

  // Its page cache.
  uint64_t budget_ = 0;
  std::deque<std::pair<uint64_t, uint64_t>> costs_;  // of [high_water, fetched): position, bytes
  uint64_t bytes_ = 0;                               // their sum
  uint64_t oversize_bytes_ = 0;  // of a sample in it that is left to the reader for its size
  bool held_back_ = false;       // the budget was too small for what comes next
  std::optional<bool> full_;     // in a turn, once it has asked: whether there is no room for more
  uint32_t kept_run_ = 0;        // samples in a row that stay, up to `fetched`
  uint32_t longest_kept_run_ = 0;

  // Units on their way.
  std::deque<std::shared_ptr<StagedUnit>> units_;  // of [staged, fetched), in order
  size_t asked_ = 0;                               // how many of them have been asked of the cache
  uint64_t asked_bytes_ = 0;                       // what they count as in flight
  uint64_t deadline_ = 0;                          // of the last unit that was asked for
  std::optional<PageRange> newest_;                // the pages of the last of them that had bytes, from its
  uint64_t newest_position_ = 0;                   // needs_from on; not the unit, which has memory
  bool complete_ = true;                           // all of the sample under way has been pushed so far

  // Sentinels.
  SentinelChooser chooser_;
  uint32_t gap_ = 0;  // in so many samples the reader is seen once, as its tracker was told
  std::map<uint64_t, PageRange> sentinels_;  // pushed and not yet passed, and the page that each lacks
  std::vector<uint64_t> open_again_;  // those of samples that may still be being read for an earlier use

  // Pages that the kernel took back are looked for in [checked, check_until).
  uint64_t checked_ = 0;
  uint64_t check_until_ = 0;
  uint64_t check_bytes_ = 0;                         // that may still be looked at
  std::optional<uint64_t> lost_from_;                // a READ told of it, and step() has not looked yet
  TimePoint check_again_{};                          // not sooner
  std::deque<std::shared_ptr<StagedUnit>> repairs_;  // counted as in flight once they are asked for
  std::set<uint64_t> repaired_;                      // so far, and not yet passed: each once

  // Filling tiers beyond the window.
  uint64_t filled_ = 0;          // so far, beyond `fetched`
  uint64_t records_filled_ = 0;  // of records: samples before this number are done in this round,
  uint64_t fills_until_ = 0;     // which then has filled up to here
  const std::shared_ptr<std::atomic<uint64_t>> fill_bytes_ =
      std::make_shared<std::atomic<uint64_t>>(0);  // under way; fetches end after the window, maybe
};

}  // namespace clairfs
