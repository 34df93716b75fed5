// Does something if something else takes too long.
#pragma once

#include <chrono>
#include <functional>
#include <utility>

#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {

/// Its thread is there from the beginning on: when it is needed, the system may grant none. Functions are for
/// the owner's thread.
class Watchdog {
 public:
  Watchdog() : thread_("watchdog", [this] { run(); }) {}
  ~Watchdog() {
    {
      MutexLock lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
  }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Calls `bark` once, on its own thread, unless rest() comes within `patience`. REQUIRES: it rests.
  void watch(std::chrono::milliseconds patience, std::function<void()> bark) {
    {
      MutexLock lock(mutex_);
      deadline_ = std::chrono::steady_clock::now() + patience;
      bark_ = std::move(bark);
    }
    changed_.notify_all();
  }
  /// Waits for a bark that has begun.
  void rest() {
    MutexLock lock(mutex_);
    bark_ = nullptr;
    changed_.notify_all();
    while (barking_) changed_.wait(lock);
  }

 private:
  void run() {
    MutexLock lock(mutex_);
    while (!over_) {
      if (!bark_) {
        changed_.wait(lock);
      } else if (std::chrono::steady_clock::now() < deadline_) {
        const auto deadline = deadline_;  // read without the lock, while watch() may set another
        changed_.wait_until(lock, deadline);
      } else {
        const auto bark = std::exchange(bark_, nullptr);
        barking_ = true;
        lock.unlock();
        bark();
        lock.lock();
        barking_ = false;
        changed_.notify_all();
      }
    }
  }

  Mutex mutex_;  // leaf
  CondVar changed_;
  std::function<void()> bark_ GUARDED_BY(mutex_);  // empty: it rests
  std::chrono::steady_clock::time_point deadline_ GUARDED_BY(mutex_);
  bool barking_ GUARDED_BY(mutex_) = false;
  bool over_ GUARDED_BY(mutex_) = false;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
