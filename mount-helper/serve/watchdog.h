// Does something if its scope takes too long.
#pragma once

#include <chrono>
#include <functional>

#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {

/// Calls `bark` once, on its own thread, unless it is destroyed within `patience`.
class Watchdog {
 public:
  Watchdog(std::chrono::milliseconds patience, std::function<void()> bark)
      : thread_("watchdog", [this, patience, bark = std::move(bark)] {
          const auto deadline = std::chrono::steady_clock::now() + patience;
          {
            MutexLock lock(mutex_);
            while (!over_ && std::chrono::steady_clock::now() < deadline) wake_.wait_until(lock, deadline);
            if (over_) return;
          }
          bark();
        }) {}
  ~Watchdog() {
    {
      MutexLock lock(mutex_);
      over_ = true;
    }
    wake_.notify_one();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  Mutex mutex_;  // leaf
  CondVar wake_;
  bool over_ GUARDED_BY(mutex_) = false;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
