#include "cache/tasks/overdue.h"

#include <algorithm>
#include <utility>

namespace clairfs {

OverdueThread::OverdueThread(const std::string& name, Duration patience,
                             std::function<void(const TaskPtr&)> give_up)
    : patience_(patience), give_up_(std::move(give_up)), thread_(name, [this] { run(); }) {}

OverdueThread::~OverdueThread() {
  MutexLock lock(mutex_);
  ending_ = true;
  wake_.notify_one();
}

void OverdueThread::add(TaskPtr task) {
  std::vector<TaskPtr> ended;  // destroyed outside the lock
  MutexLock lock(mutex_);
  let_go_of_ended(ended);
  waiting_.push_back({steady_now() + patience_, std::move(task)});
  if (std::exchange(idle_, false)) wake_.notify_one();
}

// Those in front at once. Those behind a task that hangs only when they may be half of all: each is looked at
// once or twice then, however many there are.
void OverdueThread::let_go_of_ended(std::vector<TaskPtr>& ended) {
  for (; !waiting_.empty() && waiting_.front().task->taken(); waiting_.pop_front())
    ended.push_back(std::move(waiting_.front().task));
  if (waiting_.size() < crowd_) return;
  const auto first = std::stable_partition(waiting_.begin(), waiting_.end(),
                                           [](const Waiting& waiting) { return !waiting.task->taken(); });
  for (auto at = first; at != waiting_.end(); ++at) ended.push_back(std::move(at->task));
  waiting_.erase(first, waiting_.end());
  crowd_ = std::max(kSmallCrowd, 2 * waiting_.size());
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
