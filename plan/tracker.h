// Tracker: follows the readers of one plan on this node through its sequence.
//
// What is seen. The next samples lie in the kernel's page cache, and reading them makes no request. What
// reaches us are sentinels (at least one in `gap` samples), files that were not pushed yet, and from CPython
// before 3.14 every open (it sends an ioctl). So progress is known at some samples only, while a stray access
// of somebody else, to a file that was not pushed, is always seen: of 100 observations 70 may be strays
// though only one open in 20 was.
//
// Where the reader is. With W workers batch b is opened by worker b mod W, and batch b + prefetch * W is
// handed out when batch b was delivered. So when position q has been opened, everything up to q - slack was
// delivered, and therefore opened: front() is the furthest position seen opened, position() lies slack before
// the furthest but one (a single stray access that happens to lie close ahead moves nothing), and what is
// below position() may be dropped. Ranks that do not wait for each other drift apart; when opens keep coming
// from before position() slack grows to what is seen, and an epoch later shrinks by half of that.
//
// Divergence. An observation is in order if it lies close enough to the front: as far ahead as slack and two
// sentinels that went unseen, as far behind as a front that a stray access moved may be wrong. Each one
// elsewhere adds 1 to a score, each one in order takes 0.5 / v away, v being the share of samples that are
// seen. So strays of 5 % of the opens weigh a tenth of what is in order, whatever v is, and a wrong order
// adds up even if a third of it lies in order by chance or, as with half the world size, half of it by
// nature. At 40 the plan is suspended, at 12 if every open is seen, where evidence in order does not come in
// bursts. A reader that leaves samples out (twice the world size) is told from what it passed over, if every
// open is seen and as soon as that is more than slack.
//
// Realignment. All along, observations that were out of order are compared with the known epochs
// (tracker_chain.h); if they follow one from some position on, the tracker jumps there. A suspended plan is
// found again in the same way.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "plan/sequence_positions.h"
#include "plan/tracker_chain.h"

namespace clairfs {

/// A place in a plan. The position may be the epoch's length: at its end.
struct PlanPosition {
  Epoch epoch;
  uint32_t position = 0;

  auto operator<=>(const PlanPosition&) const = default;
};

/// How an access was seen: as a read, or as an open that a read may or may not follow.
enum class Access : uint8_t { read, open };

enum class TrackerState : uint8_t { waiting, following, suspended, finished };
/// As status and logs say it.
std::string_view to_string(TrackerState state);

/// Where the observed order left the plan.
struct Divergence {
  PlanPosition at;                    ///< where the reader was
  uint32_t expected = 0;              ///< sample that would have been next
  uint32_t seen = 0;                  ///< sample that came first instead
  uint64_t out_of_order = 0;          ///< observations out of order until it was clear
  uint64_t in_order = 0;              ///< observations in order among them
  std::optional<PlanPosition> found;  ///< where the reader was found; nullopt: suspended
  std::string hint;                   ///< for people
};

struct TrackerStatus {
  TrackerState state = TrackerState::waiting;
  PlanPosition position;          ///< as Tracker::position()
  PlanPosition front;             ///< as Tracker::front()
  double samples_per_second = 0;  ///< 0: not known yet
  uint64_t slack = 0;             ///< positions, as widened by what was seen
  // For `plan check`, since the start:
  uint64_t in_order = 0;       ///< distinct observations that matched the plan
  uint64_t out_of_order = 0;   ///< ... and that did not
  uint64_t repeated = 0;       ///< of a sample that was seen just before
  uint64_t passed = 0;         ///< positions that the reader went over
  uint64_t longest_stray = 0;  ///< largest distance of an observation in order behind the front, positions
  uint64_t realignments = 0;
  uint64_t suspensions = 0;
  std::optional<Divergence> first_difference;  ///< the first observation out of order; no verdict in it
  std::optional<Divergence> divergence;        ///< the last time that the reader left the plan
};

/// Thread-safe: one lock, held for microseconds, never across a call-back. Nothing in here blocks.
class Tracker {
 public:
  enum class Verdict : uint8_t { in_order, repeated, out_of_order };

  /// `slack` as AccessSequence::slack(). `last`: the job ends after this epoch.
  Tracker(uint64_t slack, std::optional<Epoch> last);
  Tracker(const Tracker&) = delete;
  Tracker& operator=(const Tracker&) = delete;

  /// Makes an epoch known. The first one given is where the reader is expected, at its first_position(). Give
  /// the current and the next epoch, in time before the reader gets there, keep the one before, and add any
  /// other that diagnose() found; a suspended plan is compared with it at once.
  void add_epoch(std::shared_ptr<const SequencePositions> epoch);
  /// Forgets an epoch; without effect for the one the reader is in.
  void drop_epoch(Epoch epoch);

  /// Everything from the reader on up to (not including) `end` has been pushed, with a sentinel at least
  /// every `gap` positions; sentinels should not fall on one rank alone, and the last sample of an epoch be
  /// one.
  void set_pushed(PlanPosition end, uint32_t gap);

  /// The access may belong to any of `samples` (SampleIndex::samples_of()); most likely first. REQUIRES: not
  /// empty. Several accesses to a sample in a row count once. Costs a microsecond, or some tens of them for
  /// one observation out of order in four.
  Verdict observe(std::span<const uint32_t> samples, Access kind, TimePoint now);
  /// The same, but for an access out of order, which has no effect: another plan may account for it.
  Verdict offer(std::span<const uint32_t> samples, Access kind, TimePoint now);

  TrackerState state() const;
  /// Everything below has been opened: its pages may be dropped.
  PlanPosition position() const;
  /// One past the furthest position opened: the prefetcher must be ahead of it.
  PlanPosition front() const;
  /// Whether the sample there was seen opened, or lies before where the reader was found. What was pushed may
  /// have been read unseen.
  bool opened(PlanPosition place) const;
  TrackerStatus status() const;
  /// Where reads in order fell on what had been pushed, since the last call: the first kSightings at most.
  /// One of a sentinel is expected; another tells that the kernel has taken pages back.
  std::vector<PlanPosition> take_reads_of_pushed();
  /// Suspended, and diagnose() is to say why. Asked once where every open is seen; else again after a while,
  /// since what was pushed when the reader left the plan hid a part of what it opened.
  bool wants_diagnosis() const;
  /// The newest observations since the reader left the plan, in the order of time, for diagnose().
  std::vector<Sighting> evidence() const;
  /// What diagnose() found about the last divergence: the answer to wants_diagnosis().
  /// Returns whether that is news: the first hint, or another one.
  bool set_hint(std::string hint);

 private:
  // Positions count from the beginning of the current epoch, below zero in the one before, from its length on
  // in the next.
  struct Known {
    std::shared_ptr<const SequencePositions> order;
    std::vector<bool> seen;  ///< by position
  };
  struct Band {
    int64_t low = 0;
    int64_t high = 0;
  };
  struct Match {
    int64_t position = 0;
    uint32_t sample = 0;
    bool repeated = false;
  };

  int64_t length() const REQUIRES(mutex_);
  Known* known(int64_t offset) REQUIRES(mutex_);
  Band band() const REQUIRES(mutex_);
  int64_t safe_position() const REQUIRES(mutex_);
  int64_t pushed_ahead() const REQUIRES(mutex_);
  PlanPosition place(int64_t position) const REQUIRES(mutex_);
  bool every_open() const REQUIRES(mutex_);
  bool seen_lately(std::span<const uint32_t> samples) const REQUIRES(mutex_);
  void note_distinct(uint32_t sample, Access kind) REQUIRES(mutex_);
  std::optional<Match> match(std::span<const uint32_t> samples, Access kind) REQUIRES(mutex_);
  Verdict take(std::span<const uint32_t> samples, Access kind, TimePoint now) REQUIRES(mutex_);
  void accept(const Match& found, Access kind, TimePoint now) REQUIRES(mutex_);
  void note_read(int64_t position) REQUIRES(mutex_);
  void note_late(int64_t position) REQUIRES(mutex_);
  void note_advance(int64_t positions, TimePoint now) REQUIRES(mutex_);
  void enter_next() REQUIRES(mutex_);
  Verdict reject(uint32_t sample, Access kind) REQUIRES(mutex_);
  double visible() const REQUIRES(mutex_);
  double credit() const REQUIRES(mutex_);
  void note_holes(int64_t passed) REQUIRES(mutex_);
  double limit() const REQUIRES(mutex_);
  bool reads_all(const SequencePositions& order, const Chain& chain) const REQUIRES(mutex_);
  bool realign() REQUIRES(mutex_);
  void jump(Epoch epoch, const Chain& chain) REQUIRES(mutex_);
  std::string describe_jump(Epoch epoch, const Chain& chain) const REQUIRES(mutex_);
  void suspend(std::string hint) REQUIRES(mutex_);
  void begin_run(uint32_t sample) REQUIRES(mutex_);

  // Constant after construction.
  const int64_t plain_slack_;
  const std::optional<Epoch> last_;

  mutable Mutex mutex_;  // guards all below; no other lock is taken while it is held
  std::map<Epoch, Known> epochs_ GUARDED_BY(mutex_);
  TrackerState state_ GUARDED_BY(mutex_) = TrackerState::waiting;
  Epoch epoch_ GUARDED_BY(mutex_);
  int64_t front_ GUARDED_BY(mutex_) = -1;      // furthest position opened
  int64_t confirmed_ GUARDED_BY(mutex_) = -1;  // furthest but one
  int64_t slack_ GUARDED_BY(mutex_);
  PlanPosition found_ GUARDED_BY(mutex_);    // nothing before it is expected: set by jumps
  uint32_t in_next_ GUARDED_BY(mutex_) = 0;  // observations in order in a row that were of the next epoch
  std::optional<PlanPosition> pushed_ GUARDED_BY(mutex_);
  int64_t gap_ GUARDED_BY(mutex_) = 0;
  std::vector<PlanPosition> reads_of_pushed_ GUARDED_BY(mutex_);

  // Opens from before safe_position().
  uint32_t late_in_a_row_ GUARDED_BY(mutex_) = 0;
  double late_score_ GUARDED_BY(mutex_) = 0;
  int64_t late_low_ GUARDED_BY(mutex_) = 0;
  int64_t late_top_ GUARDED_BY(mutex_) = 0;

  // The last few hundred positions: how much of them was seen.
  double recent_passed_ GUARDED_BY(mutex_) = 0;
  double recent_seen_ GUARDED_BY(mutex_) = 0;
  double recent_opens_ GUARDED_BY(mutex_) = 0;

  std::deque<Sighting> lately_ GUARDED_BY(mutex_);  // the newest distinct observations
  double first_opens_ GUARDED_BY(mutex_) = 0;       // distinct observations that began with an open

  // With every open seen: positions passed over, less those opened later.
  double holes_ GUARDED_BY(mutex_) = 0;
  bool thinned_ GUARDED_BY(mutex_) = false;  // suspended for that

  // Observations out of order.
  double score_ GUARDED_BY(mutex_) = 0;
  Divergence run_ GUARDED_BY(mutex_);  // begun when the score left zero
  uint64_t run_since_ GUARDED_BY(mutex_) = 0;
  bool diagnosed_ GUARDED_BY(mutex_) = false;       // since then
  uint32_t diagnoses_left_ GUARDED_BY(mutex_) = 0;  // of the last suspension
  uint64_t diagnose_at_ GUARDED_BY(mutex_) = 0;     // tick from which on the next is wanted
  uint64_t tick_ GUARDED_BY(mutex_) = 0;
  std::deque<Sighting> sightings_ GUARDED_BY(mutex_);
  uint64_t since_search_ GUARDED_BY(mutex_) = 0;
  std::deque<uint64_t> matched_ticks_ GUARDED_BY(mutex_);  // newest kSightings in order

  double seconds_per_sample_ GUARDED_BY(mutex_) = 0;
  std::optional<TimePoint> advanced_at_ GUARDED_BY(mutex_);
  TrackerStatus totals_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
