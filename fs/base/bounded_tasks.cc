#include "fs/base/bounded_tasks.h"

#include <cerrno>
#include <chrono>
#include <memory>
#include <utility>

#include "cache/base/mutex.h"

namespace clairfs {
namespace {

// A request that is answered once.
class Once {
 public:
  explicit Once(std::function<void(const Status&)> answer) : answer_(std::move(answer)) {}

  void give(const Status& status) {
    {
      MutexLock lock(mutex_);
      if (std::exchange(answered_, true)) return;
    }
    given_.notify_one();
    answer_(status);
  }
  void wait_until(std::chrono::steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    while (!answered_ && given_.wait_until(lock, deadline) != std::cv_status::timeout) {
    }
  }

 private:
  const std::function<void(const Status&)> answer_;
  Mutex mutex_;  // leaf
  CondVar given_;
  bool answered_ GUARDED_BY(mutex_) = false;
};

}  // namespace

void BoundedTasks::post(std::function<Status()> task, std::function<void(const Status&)> answer) {
  const auto deadline = std::chrono::steady_clock::now() + patience_;
  const auto once = std::make_shared<Once>(std::move(answer));
  tasks_.post([once, task = std::move(task)](const std::atomic<bool>&) { once->give(task()); });
  answers_.post([once, deadline](const std::atomic<bool>&) {
    once->wait_until(deadline);
    once->give(Error{EINPROGRESS, "it takes long, and goes on"});
  });
}

}  // namespace clairfs
