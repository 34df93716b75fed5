// Tasks whose requests are answered by a deadline, however long the task itself takes.
#pragma once

#include <functional>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/result.h"
#include "cache/tasks/task_thread.h"

namespace clairfs {

/// Thread-safe. Tasks run one after the other on a thread of the given name; a second one ("answers") watches
/// the clock. The destructor runs what is queued, so that every request is answered.
class BoundedTasks {
 public:
  BoundedTasks(const std::string& name, Duration patience) : patience_(patience), tasks_(name) {}

  /// Calls `answer` exactly once: with the result of `task`, or, if that has not ended when `patience` has
  /// passed, with EINPROGRESS. The task goes on then, and its result is lost.
  void post(std::function<Status()> task, std::function<void(const Status&)> answer);

 private:
  const Duration patience_;
  TaskThread answers_{"answers"};
  TaskThread tasks_;  // last: ends first, when no request waits for its answers any more
};

}  // namespace clairfs
