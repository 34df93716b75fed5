// A thread that runs what is posted to it: for what takes long, and for events that may wait.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <string>

#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {

/// Runs tasks one after the other. Thread-safe, but for end() and the destructor.
class TaskThread {
 public:
  using Task = std::function<void(const std::atomic<bool>& stopping)>;

  explicit TaskThread(const std::string& name);
  ~TaskThread() { end(); }
  void post(Task task);
  /// Waits for what is queued, which runs with `stopping` set, so that every task can still answer its
  /// request. Tasks that are posted later never run. Later calls do nothing.
  void end();

 private:
  void run();

  std::atomic<bool> stopping_{false};
  Mutex mutex_;  // leaf; guards the queue
  CondVar wake_;
  std::deque<Task> tasks_ GUARDED_BY(mutex_);
  NamedThread thread_;  // last: uses all of the above
};

}  // namespace clairfs
