// A thread for the few things that a FUSE request may ask for and that take long.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>

#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {

/// Runs tasks one after the other. Thread-safe. The destructor runs what is queued, with `stopping()` set, so
/// that every task can still answer its request.
class TaskThread {
 public:
  using Task = std::function<void(const std::atomic<bool>& stopping)>;

  explicit TaskThread(const std::string& name);
  ~TaskThread();
  void post(Task task);

 private:
  void run();

  std::atomic<bool> stopping_{false};
  Mutex mutex_;  // leaf; guards the queue
  CondVar wake_;
  std::deque<Task> tasks_ GUARDED_BY(mutex_);
  NamedThread thread_;  // last: uses all of the above
};

}  // namespace clairfs
