// Tasks one after the other, without a thread of their own and without a wait.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "cache/base/mutex.h"

namespace clairfs {

/// Thread-safe. A task may add others. No lock is held while one runs.
class InTurn {
 public:
  /// Runs the task and those that are added meanwhile, or leaves it to the thread that is at it already,
  /// which may run it after this returns.
  void run(std::function<void()> task) {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
    if (std::exchange(running_, true)) return;
    while (!tasks_.empty()) {
      std::function<void()> next = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      next();
      next = nullptr;  // lets go of what it holds without the lock, too
      lock.lock();
    }
    running_ = false;
  }

 private:
  Mutex mutex_;  // leaf
  std::deque<std::function<void()>> tasks_ GUARDED_BY(mutex_);
  bool running_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
