// RankTrackers: follows the readers of one plan on this node, each by its own tracker.
//
// Ranks that do not wait for each other drift apart, by epochs in the end, so no single position says where a
// node is. Each access is given to one rank. In one epoch each sample belongs to one rank; but the same
// sample is another rank's in another epoch, and ranks that are epochs apart both expect it. So threads are
// remembered: a thread is bound to the rank that its first access in order belonged to, and what it reads is
// looked for there first. The kernel tells the thread of every request, as the daemon's process namespace
// numbers it; 0 stands for those outside of it, which are told by the samples alone.
//
// An access that no rank expects counts against one of them. An access of a bound thread counts against its
// rank, as long as no other rank has all that the thread read lately. An access of a thread that was never
// bound counts against the rank that was read last: occasional reads of another program do not disturb that
// one. Many such accesses mean that a rank has started again in a new process: of the ranks that have what
// the thread read, in an epoch that is known, it is the one that has been silent for the longest. A thread
// whose accesses are in order for another rank is bound to that one after a few: the kernel uses numbers of
// threads again.
#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/base/mutex.h"
#include "plan/tracking/tracker.h"

namespace clairfs {

/// A thread that reads, as the kernel numbers it; 0: not known.
using ThreadId = Id<struct ThreadTag>;

/// Thread-safe: its lock is not held while a tracker is asked. With one tracker it costs nothing; with
/// several some tens of nanoseconds for a thread that is bound, and a microsecond a tracker for one that is
/// not.
class RankTrackers {
 public:
  static constexpr size_t kMost = 64;  ///< ranks: bits of a word

  /// By rank of the node. REQUIRES: 1 to kMost; they outlive this.
  explicit RankTrackers(std::vector<Tracker*> trackers);

  struct Observed {
    Tracker::Verdict verdict = Tracker::Verdict::out_of_order;
    size_t rank = 0;                    ///< whose access it is taken to be
    bool moved = false;                 ///< its high-water mark or state is another
    std::optional<int64_t> position{};  ///< Tracker::Observation::position
  };
  /// As Tracker::observe() and Tracker::offer(), of the rank that the access belongs to.
  Observed observe(ThreadId thread, std::span<const uint32_t> samples, Access kind, TimePoint now);
  Observed offer(ThreadId thread, std::span<const uint32_t> samples, Access kind, TimePoint now);

  /// The rank to which the thread is bound.
  std::optional<size_t> rank_of(ThreadId thread) const;

 private:
  using Ranks = std::bitset<kMost>;
  struct Thread {
    std::optional<size_t> rank;  ///< bound to it
    uint32_t confidence = 0;
    Ranks candidates = Ranks().set();  ///< those that have what it read lately out of order
    uint32_t run = 0;                  ///< accesses that tell so
    uint64_t seen = 0;                 ///< when it was seen last, in accesses
  };

  using Method = Tracker::Observation (Tracker::*)(std::span<const uint32_t>, Access, TimePoint);
  Observed tell(size_t rank, Method method, std::span<const uint32_t> samples, Access kind, TimePoint now);
  std::optional<size_t> nearest(std::span<const uint32_t> samples, Access kind, std::optional<size_t> but);
  void note_match(ThreadId thread, size_t rank);
  size_t to_charge(ThreadId thread, const Ranks& holders, const Ranks& left);
  size_t most_silent(const Ranks& candidates, const Ranks& left) const REQUIRES(mutex_);
  size_t least_silent() const REQUIRES(mutex_);
  void forget_old() REQUIRES(mutex_);

  const std::vector<Tracker*> trackers_;

  mutable Mutex mutex_;  // leaf
  uint64_t accesses_ GUARDED_BY(mutex_) = 0;
  std::vector<uint64_t> matched_ GUARDED_BY(mutex_);  // by rank: the last access in order
  double strangers_ GUARDED_BY(mutex_) =
      0;  // accesses of threads that were never bound, less what forgives them
  std::unordered_map<uint32_t, Thread> threads_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
