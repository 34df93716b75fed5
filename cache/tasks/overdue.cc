#include "cache/tasks/overdue.h"

#include <utility>
#include <vector>

namespace clairfs {

OverdueThread::OverdueThread(const std::string& name, Duration patience,
                             std::function<void(const TaskPtr&)> give_up)
    : patience_(patience), give_up_(std::move(give_up)), thread_(name, [this] { run(); }) {}

OverdueThread::~OverdueThread() {
  MutexLock lock(mutex_);
  ending_ = true;
  wake_.notify_one();
}

// Lets go of what has ended, so that only a task that hangs holds up those behind it.
void OverdueThread::add(TaskPtr task) {
  std::vector<TaskPtr> ended;  // destroyed outside the lock
  MutexLock lock(mutex_);
  for (; !waiting_.empty() && waiting_.front().task->taken(); waiting_.pop_front())
    ended.push_back(std::move(waiting_.front().task));
  waiting_.push_back({steady_now() + patience_, std::move(task)});
  if (std::exchange(idle_, false)) wake_.notify_one();
}

// Body of the thread.
void OverdueThread::run() {
  MutexLock lock(mutex_);
  while (!ending_) {
    if (waiting_.empty()) {
      idle_ = true;
      wake_.wait(lock);
      continue;
    }
    const TimePoint due = waiting_.front().due;
    if (!waiting_.front().task->taken() && steady_now() < due) {
      wake_.wait_until(lock, due);
      continue;
    }
    TaskPtr task = std::move(waiting_.front().task);
    waiting_.pop_front();
    lock.unlock();
    if (task->take()) give_up_(task);
    task.reset();
    lock.lock();
  }
}

}  // namespace clairfs
