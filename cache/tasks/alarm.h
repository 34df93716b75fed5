// Alarm: tells a thread that there is something to do.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"

namespace clairfs {

/// Thread-safe. Rings that were not answered yet count as one.
class Alarm {
 public:
  void ring() {
    {
      const MutexLock lock(mutex_);
      rung_ = true;
    }
    changed_.notify_one();
  }
  /// Ends the wait, now and later.
  void end() {
    {
      const MutexLock lock(mutex_);
      ended_ = true;
    }
    changed_.notify_one();
  }

  /// Waits until it rings, for `most` at most if that is given. False after end().
  bool wait(std::optional<Duration> most) {
    MutexLock lock(mutex_);
    while (!rung_ && !ended_) {
      if (!most) {
        changed_.wait(lock);
      } else if (changed_.wait_for(lock, *most) == std::cv_status::timeout) {
        break;
      }
    }
    rung_ = false;
    return !ended_;
  }
  /// Whether it has rung since it was answered last; answers it.
  bool answer() {
    const MutexLock lock(mutex_);
    return std::exchange(rung_, false);
  }
  bool ended() const {
    const MutexLock lock(mutex_);
    return ended_;
  }

 private:
  mutable Mutex mutex_;  // leaf
  CondVar changed_;
  bool rung_ GUARDED_BY(mutex_) = false;
  bool ended_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
