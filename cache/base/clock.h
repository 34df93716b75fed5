// Time as the daemon sees it, injected so that tests can move it.
#pragma once

#include <chrono>

namespace clairfs {

using TimePoint = std::chrono::steady_clock::time_point;
using Duration = std::chrono::steady_clock::duration;

inline double in_seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

inline TimePoint steady_now() {
  return std::chrono::steady_clock::now();
}

/// Monotonic time. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
};

/// The machine's monotonic clock: jumps of the wall clock do not reach it.
class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return steady_now(); }
};

}  // namespace clairfs
