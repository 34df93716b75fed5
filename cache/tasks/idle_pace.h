// IdlePace: keeps work under SCHED_IDLE from slowing down what keeps all cores busy.
//
// SCHED_IDLE gives a thread only what cores have left, but even that is not free: a core that waits for a
// file goes to the thread and back, and finds its caches filled by others. A training on all cores took up to
// 5 % longer beside a search that got a twelfth of their time. So a thread that gets less than half of a
// core, which others want then, takes no more than a small share of all.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"

namespace clairfs {

/// Thread-safe: shared by the threads of one work.
class IdlePace {
 public:
  /// Of the time of all cores, in the long run. Others were seen to lose as much as was taken; 0.5 % is what
  /// they may lose, watching (plan/inference) included.
  static constexpr double kShare = 0.0025;
  /// Processor time that may be taken at once, if little was before: a search for the seed of the most usual
  /// script takes 0.6 s with 100,000 samples.
  static constexpr Duration kAtOnce = std::chrono::milliseconds(750);

  explicit IdlePace(unsigned cores = std::thread::hardware_concurrency());

  /// For each of the threads to call every few milliseconds. Waits while too much was taken of busy cores;
  /// until `stop`, which is asked every 50 ms, or hurry() of its IdleThread. Without effect on a thread that
  /// is not under SCHED_IDLE.
  void keep(const std::function<bool()>& stop);
  /// Somebody waits for the work: nothing is held back until then, and nothing of it counts.
  void suspend(TimePoint until);
  /// So much was taken of busy cores until `now`. No more should be for the time that is returned.
  Duration take(Duration used, TimePoint now);

 private:
  const double share_;  // of one core
  Mutex mutex_;         // leaf
  double left_ GUARDED_BY(mutex_) = in_seconds(kAtOnce);
  TimePoint filled_ GUARDED_BY(mutex_);
  std::atomic<TimePoint> suspended_until_{TimePoint::min()};
};

}  // namespace clairfs
