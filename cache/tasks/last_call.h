// LastCall: a call that a thread which is never joined makes when its time has come, unless it was called
// off.
#pragma once

#include <functional>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"

namespace clairfs {

/// Thread-safe. No lock is held during the call.
class LastCall {
 public:
  explicit LastCall(std::function<void()> call) : call_(std::move(call)) {}

  /// Makes the call. False: it was called off, and nothing happened. REQUIRES: called once.
  bool make() {
    {
      const MutexLock lock(mutex_);
      if (off_) return false;
      making_ = true;
    }
    call_();
    {
      const MutexLock lock(mutex_);
      making_ = false;
    }
    ended_.notify_all();
    return true;
  }

  /// The call does not begin any more. False: it had begun, and did not end within `patience`.
  bool call_off(Duration patience) {
    const TimePoint deadline = steady_now() + patience;
    MutexLock lock(mutex_);
    off_ = true;
    while (making_ && steady_now() < deadline) ended_.wait_until(lock, deadline);
    return !making_;
  }

 private:
  const std::function<void()> call_;
  Mutex mutex_;  // leaf
  CondVar ended_;
  bool off_ GUARDED_BY(mutex_) = false;
  bool making_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
