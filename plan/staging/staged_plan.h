// Staging's state of a plan and of its readers. For staging's own sources only.
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

/// A reader on its way. All but `staged_published` belongs to step().
struct ReaderWindow {
  ReaderWindow(StagedPlan& of, std::shared_ptr<PlanReader> follows, size_t readers)
      : plan(&of), reader(std::move(follows)), chooser(readers) {}

  StagedPlan* const plan;  // whose window it is
  const std::shared_ptr<PlanReader> reader;
  Timeline timeline;
  bool started = false;
  uint64_t high_water = 0;  // the reader's, as last seen
  uint64_t safe = 0;        // everything before has been opened
  uint64_t dropped = 0;
  uint64_t staged = 0;
  uint64_t fetched = 0;
  uint64_t held = 0;            // the further of the two: the ledger holds [dropped, held)
  uint64_t filled = 0;          // tiers have been filled up to here, beyond `fetched`
  uint64_t records_filled = 0;  // of records: samples before this number are done in this round,
  uint64_t fills_until = 0;     // which then has filled up to here
  std::deque<std::shared_ptr<StagedUnit>> units;    // of [staged, fetched), in order
  std::optional<PageRange> newest;                  // the pages of the last of them that had bytes, from its
  uint64_t newest_position = 0;                     // needs_from on; not the unit, which has memory
  size_t asked = 0;                                 // how many of them have been asked of the cache
  uint64_t asked_bytes = 0;                         // what they count as in flight
  bool complete = true;                             // all of it so far has been pushed
  std::deque<std::pair<uint64_t, uint64_t>> costs;  // of [high_water, fetched): position, bytes
  uint64_t bytes = 0;                               // their sum
  uint32_t kept_run = 0;                            // samples in a row that stay, up to `fetched`
  uint32_t longest_kept_run = 0;
  uint64_t oversize_bytes = 0;  // of a sample in it that is left to the reader for its size
  uint64_t budget = 0;
  bool held_back = false;    // the budget was too small for what comes next
  std::optional<bool> full;  // in a turn, once it has asked: whether there is no room for more
  SentinelChooser chooser;
  uint32_t gap = 0;                // in so many samples the reader is seen once, as its tracker was told
  uint64_t pushed_until = 0;       // so far was pushed what the window has given up since
  std::optional<TimePoint> moved;  // when it moved last, or was first served
  bool idle = false;               // it had stopped when the turn began
  uint64_t deadline = 0;           // of the last unit that was asked for
  std::map<uint64_t, PageRange> sentinels;  // pushed and not yet passed, and the page that each lacks
  // Pages that the kernel took back are looked for in [checked, check_until).
  uint64_t checked = 0;
  uint64_t check_until = 0;
  uint64_t check_bytes = 0;                         // that may still be looked at
  std::optional<uint64_t> lost_from;                // a READ told of it, and step() has not looked yet
  TimePoint check_again{};                          // not sooner
  std::deque<std::shared_ptr<StagedUnit>> repairs;  // counted as in flight once they are asked for
  std::set<uint64_t> repaired;                      // so far, and not yet passed: each once
  std::vector<uint64_t> open_again;  // sentinels of samples that may still be being read for an earlier use
  std::atomic<uint64_t> staged_published{0};
  const std::shared_ptr<std::atomic<uint64_t>> fill_bytes = std::make_shared<std::atomic<uint64_t>>(0);
};

/// A plan on its way: a window for each of its readers. Windows, kept_bytes and common_pages are constant
/// once it was added; common_read is for any thread; all else belongs to step().
struct StagedPlan {
  explicit StagedPlan(StagingParts& with) : parts(with) {}

  /// Whether somebody may still read in its order.
  bool goes_on() const;
  /// Whether any reader has a use of the sample beyond what it is done with, as far as is known.
  bool comes_again(uint32_t sample) const;
  /// One use of the sample is over; false if all its pages are still of use.
  bool drop_released(uint32_t sample);
  /// The sample does not stay any more: it goes as soon as no reader has it ahead.
  void let_go(uint32_t sample);
  /// Of at most so many samples; true if others stay.
  bool let_go_of_any(uint64_t most);
  /// Whether the sample's chunks need no place in a tier, since the page cache has it.
  void tell_policy_of_pages(uint32_t sample, bool there) const;

  StagingParts& parts;
  std::vector<std::unique_ptr<ReaderWindow>> windows;  // by rank
  uint64_t kept_bytes = 0;                             // the dataset's size, for good; only if keeps_all
  bool keeps_all = false;                              // it fits the budget, beside those of other such plans
  bool keeps_part = false;                             // samples may stay though not all fit
  uint64_t part_bytes = 0;                             // of those that do; only if not keeps_all
  uint32_t searched = 0;             // no sample before this number stays, while all are dropped
  bool goes_on_unknown = false;      // more may follow its end: that of one epoch of a found plan
  bool of_records = false;           // its samples lie in larger files
  bool fills_in_file_order = false;  // tiers, with its records
  bool admitted = false;             // those that were there first have made room for it; only if keeps_all
  std::optional<PageLedger> ledger;  // set when it was added
  std::vector<PageRange> common_pages;             // what every reader needs, by file and place
  uint64_t common_bytes = 0;                       // of it
  std::deque<std::shared_ptr<StagedUnit>> common;  // those of it that are to be pushed, at first or again
  std::atomic<bool> common_read{false};            // a READ asked for some of it
  size_t common_checked = 0;                       // of common_pages; all of them: losses are not looked for
  bool common_gone = false;                        // some of what was looked at so far
  TimePoint check_common_again{};                  // not sooner
  Duration common_pause{};                         // between the last look and the next
};

}  // namespace clairfs
