// Tracker: follows the readers of one plan on this node through its sequence.
//
// Visible reads. The next samples lie in the kernel's page cache, and reading them makes no request. Requests
// come for sentinels (at least one in `gap` samples), for files that were not pushed yet, and from CPython
// before 3.14 for every open (it sends an ioctl). So progress is known at some samples only, while another
// process's stray access to a file that was not pushed is always seen.
//
// Each part has its own page of theory:
//   progress.h    where the reader is and how fast, from what was seen opened
//   order_score.h  whether it still follows the plan; if not, the plan is suspended
//   relocator.h   where it is after it went somewhere else, in a plan that is followed or suspended
//   departure.h  where it left the plan, whether for good, when diagnose() is to say why, and by what
//   known_epochs.h  the epochs in which it can be, and what was seen of them
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "plan/tracking/chain.h"
#include "plan/tracking/departure.h"
#include "plan/tracking/known_epochs.h"
#include "plan/tracking/order_score.h"
#include "plan/tracking/progress.h"
#include "plan/tracking/relocator.h"
#include "plan/tracking/tracker_status.h"

namespace clairfs {

/// Positions are absolute, as in the reader's Timeline; those of an epoch from elsewhere are in no timeline.
/// Only what is reported names places by epoch. Thread-safe: one lock, held for microseconds (a millisecond
/// where much waited for an epoch), never across a call-back. Nothing in here blocks.
class Tracker {
 public:
  enum class Verdict : uint8_t { in_order, repeated, out_of_order };
  struct Observation {
    Verdict verdict = Verdict::out_of_order;
    std::optional<int64_t> position{};  ///< of the use that the access belongs to, where that is clear

    bool operator==(Verdict other) const { return verdict == other; }
  };

  /// `reorder_window` as AccessSequence::reorder_window(). `last`: the job ends after this epoch. `leap`: set
  /// if samples are parts of streams; how many of them may go unread at once (AccessSequence::reader_leap()).
  Tracker(uint64_t reorder_window, std::optional<Epoch> last, std::optional<uint64_t> leap = {});
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// Makes an epoch known that has the absolute positions from `begin` on, or an epoch somewhere else. The
  /// first one given is where the reader is expected, at its first_position(). Give the current and the next
  /// epoch, end to end, in time before the reader gets there, keep the one before, and add any other that
  /// diagnose() found; a suspended plan is compared with it at once. A reader at the end of the last known
  /// epoch may be in the next one already. An access that nothing explains there waits, and is judged when
  /// the next epoch comes; so does an open of a sample that the epoch ended with.
  void add_epoch(std::shared_ptr<const SequencePositions> epoch, std::optional<uint64_t> begin);
  /// Opens stray from the order by as many positions, more than the plan says: diagnose() found that. A
  /// suspended plan is compared with it at once.
  void widen(uint64_t reorder_window);
  /// Forgets an epoch; without effect for the one the reader is in.
  void drop_epoch(Epoch epoch);

  /// Everything from the reader on up to (not including) `end` has been pushed, with a sentinel at least
  /// every `gap` positions; sentinels should not fall on one rank alone, and the last sample of an epoch be
  /// one.
  void set_pushed(uint64_t end, uint32_t gap);
  /// No sentinel can be among the plan's samples from `from` on: the plan ends for the tracker with the one
  /// before. Until the reader is found somewhere else.
  void set_unseen_end(uint64_t from);

  /// To be called now and then. A reader to whom all has been pushed may pass more unseen than is believed of
  /// one that goes on, and then the sentinel that is the plan's end tells of an access out of order. If
  /// nothing was seen for some seconds after it, that was the end: the plan is finished. Returns how long
  /// that still takes; nothing: it is not so.
  std::optional<Duration> look_for_unseen_end(TimePoint now);

  /// The access may belong to any of `samples` (SampleIndex::samples_of()); most likely first. REQUIRES: not
  /// empty. Several accesses to a sample in a row count once; an Access::read_on that the order does not
  /// account for is a repetition, and so is one that waits for the next epoch (add_epoch()). When the plan
  /// has ended and none of its last samples is left, an open of a sample that was not seen lately is out of
  /// order. Costs a microsecond, or a search (relocator.h) for one observation out of order in four.
  Observation observe(std::span<const uint32_t> samples, Access kind, TimePoint now);
  /// The same, but for an access out of order, which has no effect: another plan may account for it.
  Observation offer(std::span<const uint32_t> samples, Access kind, TimePoint now);

  /// How far from the next position an access in order would be; larger for one that would be a repetition
  /// than for any other; nothing for one out of order. No effect.
  std::optional<uint64_t> distance(std::span<const uint32_t> samples, Access kind) const;
  /// Whether an epoch that is known has one of the samples.
  bool knows(std::span<const uint32_t> samples) const;
  /// The same, or whether the reader may be in an epoch that is not known yet.
  bool may_come_to(std::span<const uint32_t> samples) const;

  /// Positions that opens stray: as the plan says, or as it was widened.
  uint64_t reorder_window() const;
  /// One that was left after its end shows as finished, as before.
  TrackerState state() const;
  /// Whether the reader went another way: the plan is suspended, or it has finished, and too much of what was
  /// opened since is out of order. Until the reader is found.
  bool is_left() const;
  /// Followed for certain: the reader was found, or had some accesses in order without doubt. A rank that
  /// waits has one in order by chance now and then, of readers that go another way.
  bool is_followed() const;
  /// Suspended, and not for a dataset of `samples` that only looks for its samples before it reads them: the
  /// reader goes through files, or was seen at more samples than there are.
  bool left_for_good(uint64_t samples) const;
  /// Everything below has been opened: its pages may be dropped.
  uint64_t position() const;
  /// One past the furthest position opened: the prefetcher must be ahead of it.
  uint64_t high_water() const;
  /// The epoch of high_water().
  Epoch high_water_epoch() const;
  /// Whether the sample there was seen opened, or lies before the place where the reader was found. A pushed
  /// sample may also have been read unseen.
  bool opened(uint64_t position) const;
  /// Whether all of the epoch's end was seen opened that may come after its very last sample: no worker is
  /// behind that would still open some of it.
  bool seen_to_the_end() const;
  TrackerStatus status() const;
  /// Where reads in order fell on what had been pushed, since the last call: the first kSightings at most.
  /// One of a sentinel is expected; another tells that the kernel has taken pages back.
  std::vector<uint64_t> take_reads_of_pushed();
  /// The plan is left, and diagnose() is to say why: at once, and again after a while (departure.h).
  bool wants_diagnosis() const;
  /// The newest observations since the reader left the plan, in the order of time, for diagnose().
  std::vector<Sighting> evidence() const;
  /// The newest distinct observations when the plan was last suspended, also those that seemed to be in its
  /// order, and the first ones after that, kSightings at most: of a reader that never followed it, its first
  /// opens; of one that left between two epochs, those since then.
  std::vector<Sighting> around_suspension() const;
  /// Takes diagnose()'s finding about the last divergence: the answer to wants_diagnosis(). Returns whether
  /// that is news: the first hint, or another one.
  bool set_hint(std::string hint);

 private:
  struct Match {
    Epoch epoch;
    uint32_t in_epoch = 0;
    int64_t position = 0;
    uint32_t sample = 0;
    bool repeated = false;
  };

  /// An access that may be of an epoch that is not known yet.
  struct Waiting {
    std::vector<uint32_t> samples;
    Access kind = Access::open;
    TimePoint at{};
  };

  void set_epoch(Epoch epoch) REQUIRES(mutex_);
  bool pushed_ahead() const REQUIRES(mutex_);
  bool shows_all(Access kind) const REQUIRES(mutex_);
  Progress::Band band(Access kind) const REQUIRES(mutex_);
  double chance(Access kind) const REQUIRES(mutex_);
  int64_t safe() const REQUIRES(mutex_);
  int64_t next() const REQUIRES(mutex_);
  const Sighting* seen_lately(std::span<const uint32_t> samples) const REQUIRES(mutex_);
  Sighting note_distinct(std::span<const uint32_t> samples, int64_t position, Access kind) REQUIRES(mutex_);
  std::optional<Match> match(std::span<const uint32_t> samples, Access kind) const REQUIRES(mutex_);
  Observation take(std::span<const uint32_t> samples, Access kind, TimePoint now) REQUIRES(mutex_);
  Observation take_or_wait(std::span<const uint32_t> samples, Access kind, TimePoint now) REQUIRES(mutex_);
  bool may_be_beyond() const REQUIRES(mutex_);
  void wait_for_next(std::span<const uint32_t> samples, Access kind, TimePoint now) REQUIRES(mutex_);
  void judge_what_waited() REQUIRES(mutex_);
  bool lies_behind_last(std::span<const uint32_t> samples) const REQUIRES(mutex_);
  void accept(const Match& found, Access kind, TimePoint now) REQUIRES(mutex_);
  void finish() REQUIRES(mutex_);
  bool opened_again(const Match& found) const REQUIRES(mutex_);
  bool reads_anew(std::span<const uint32_t> samples) const REQUIRES(mutex_);
  bool is_epoch_over() const REQUIRES(mutex_);
  bool too_early(const Match& found, Access kind) REQUIRES(mutex_);
  bool seen_in_epoch(uint32_t sample) const REQUIRES(mutex_);
  void look_for_holes() REQUIRES(mutex_);
  int64_t last_to_tell() const REQUIRES(mutex_);
  void note_stray_at_end(std::span<const uint32_t> samples) REQUIRES(mutex_);
  bool leaves_out() const REQUIRES(mutex_);
  void note_read(int64_t position) REQUIRES(mutex_);
  void enter_next() REQUIRES(mutex_);
  Verdict reject(std::span<const uint32_t> samples, Access kind) REQUIRES(mutex_);
  bool realign() REQUIRES(mutex_);
  void jump(const Found& found) REQUIRES(mutex_);
  std::string describe_jump(const Found& found) const REQUIRES(mutex_);
  void suspend(std::string hint) REQUIRES(mutex_);
  TrackerState shown() const REQUIRES(mutex_);

  const std::optional<Epoch> last_;
  const bool of_streams_;
  const int64_t leap_;

  mutable Mutex mutex_;  // guards all below; no other lock is taken while it is held
  KnownEpochs epochs_ GUARDED_BY(mutex_);
  Progress progress_ GUARDED_BY(mutex_);
  OrderScore score_ GUARDED_BY(mutex_);
  Relocator relocator_ GUARDED_BY(mutex_);
  Departure departure_ GUARDED_BY(mutex_);

  TrackerState state_ GUARDED_BY(mutex_) = TrackerState::waiting;
  bool was_finished_ GUARDED_BY(mutex_) = false;  // when it was suspended
  bool past_end_ GUARDED_BY(mutex_) = false;      // of a finished plan: its reader read all of it
  Epoch epoch_ GUARDED_BY(mutex_);                // where the reader is, and its positions
  int64_t begin_ GUARDED_BY(mutex_) = 0;
  int64_t end_ GUARDED_BY(mutex_) = 0;
  uint32_t in_next_ GUARDED_BY(mutex_) = 0;  // observations in order in a row that were of the next epoch
  double early_ GUARDED_BY(mutex_) = 0;      // observations ahead in the next epoch, less what forgives them
  int64_t found_ GUARDED_BY(mutex_) = 0;     // nothing before it is expected: where the reader was found
  std::deque<Sighting> lately_ GUARDED_BY(mutex_);   // the newest distinct observations
  std::vector<Waiting> waiting_ GUARDED_BY(mutex_);  // for the next epoch, in the order of time
  size_t samples_waiting_ GUARDED_BY(mutex_) = 0;    // of all of them

  std::optional<int64_t> pushed_ GUARDED_BY(mutex_);
  int64_t gap_ GUARDED_BY(mutex_) = 0;
  std::optional<int64_t> unseen_from_ GUARDED_BY(mutex_);
  std::vector<uint64_t> reads_of_pushed_ GUARDED_BY(mutex_);
  bool stray_at_end_ GUARDED_BY(mutex_) = false;          // the newest observation was one
  std::optional<TimePoint> silent_ GUARDED_BY(mutex_){};  // since then, as far as looked

  TrackerStatus totals_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
