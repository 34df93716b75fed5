// Waiting for what another thread brings about: where that thread can say so, a test is woken
// (SequencePoints, AwaitedCount); where it is the kernel, a disk or the code under test, the test looks again
// and again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"

namespace clairfs {

/// No healthy run takes as long: four fifths of what ctest gives a test (tests/CMakeLists.txt).
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr auto kLongestWait = std::chrono::minutes(16);
#else
inline constexpr auto kLongestWait = std::chrono::minutes(4);
#endif

/// Waits for what must come, and looks every two milliseconds; false only after kLongestWait.
inline bool eventually(const std::function<bool()>& condition) {
  const TimePoint end = steady_now() + kLongestWait;
  while (steady_now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // nobody tells of the change
  }
  return condition();
}

/// Points that other threads pass, after each of which what a test waits for may have come. Thread-safe.
class SequencePoints {
 public:
  void pass() {
    const MutexLock lock(mutex_);
    ++passed_;
    if (waiting_ > 0) changed_.notify_all();
  }
  /// Waits until the condition holds. It is asked at once and, without a lock, whenever a point was passed.
  /// False only after kLongestWait.
  bool wait_until(const std::function<bool()>& condition) {
    const TimePoint end = steady_now() + kLongestWait;
    MutexLock lock(mutex_);
    ++waiting_;
    bool holds = false;
    for (;;) {
      const uint64_t before = passed_;
      lock.unlock();
      holds = condition();
      lock.lock();
      if (holds || steady_now() >= end) break;
      while (passed_ == before) {
        if (changed_.wait_until(lock, end) == std::cv_status::timeout) break;
      }
    }
    --waiting_;
    return holds;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  uint64_t passed_ GUARDED_BY(mutex_) = 0;
  int waiting_ GUARDED_BY(mutex_) = 0;
};

/// A count that other threads raise and a test waits for. Thread-safe. It may go as soon as the last raise
/// was waited for: who has raised it touches it no more.
class AwaitedCount {
 public:
  void raise() {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();  // with the lock held: see above
  }
  uint64_t value() const {
    const MutexLock lock(mutex_);
    return count_;
  }
  /// Waits until it is so large; false only after kLongestWait.
  bool reaches(uint64_t least) const {
    const TimePoint end = steady_now() + kLongestWait;
    MutexLock lock(mutex_);
    while (count_ < least) {
      if (changed_.wait_until(lock, end) == std::cv_status::timeout) break;
    }
    return count_ >= least;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar changed_;
  uint64_t count_ GUARDED_BY(mutex_) = 0;
};

}  // namespace clairfs
