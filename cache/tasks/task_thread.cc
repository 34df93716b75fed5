#include "cache/tasks/task_thread.h"

namespace clairfs {

TaskThread::TaskThread(const std::string& name) : thread_(name, [this] { run(); }) {}

void TaskThread::end() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TaskThread::post(Task task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
}

void TaskThread::run() {
  for (;;) {
    Task task;
    {
      MutexLock lock(mutex_);
      while (tasks_.empty() && !stopping_) wake_.wait(lock);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task(stopping_);
  }
}

}  // namespace clairfs
