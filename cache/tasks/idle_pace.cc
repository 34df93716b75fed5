#include "cache/tasks/idle_pace.h"

#include <algorithm>

#include <sched.h>

#include "cache/base/thread.h"

namespace clairfs {
namespace {

// Over which it is seen how much of a core a thread gets: some dozen time slices of those who want it.
constexpr Duration kPeriod = std::chrono::milliseconds(50);
// Who has used less was waiting for another thread.
constexpr Duration kLeast = std::chrono::milliseconds(1);

bool is_idle_thread() {
  return ::sched_getscheduler(0) == SCHED_IDLE;
}

// When a thread was last asked for what it has used.
struct Counted {
  TimePoint at = steady_now();
  Duration used = thread_cpu_time();
};

}  // namespace

IdlePace::IdlePace(unsigned cores) : share_(kShare * std::max(cores, 1U)), filled_(steady_now()) {}

void IdlePace::keep(const std::function<bool()>& stop) {
  thread_local Counted last;
  const TimePoint now = steady_now();
  if (now - last.at < kPeriod) return;
  const Duration used = thread_cpu_time() - last.used;
  if (used < kLeast) return;
  if (2 * used < now - last.at && now >= suspended_until_.load() && is_idle_thread()) {
    const TimePoint until = now + take(used, now);
    for (TimePoint at = now; at < until && at >= suspended_until_.load() && is_idle_thread() && !stop();
         at = steady_now())
      std::this_thread::sleep_for(std::min(until - at, kPeriod));
  }
  last = Counted();
}

void IdlePace::suspend(TimePoint until) {
  suspended_until_ = until;
}

Duration IdlePace::take(Duration used, TimePoint now) {
  const MutexLock lock(mutex_);
  left_ = std::min(left_ + share_ * in_seconds(now - filled_), in_seconds(kAtOnce)) - in_seconds(used);
  filled_ = now;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::max(-left_ / share_, 0.0)));
}

}  // namespace clairfs
