// A thread that gives up what takes longer than it may.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {

/// All tasks may take equally long. The thread sleeps while nothing is under way, and else until the oldest
/// task is overdue. A task that has ended is released soon, though one before it hangs. Thread-safe, but for
/// the destructor.
class OverdueThread {
 public:
  /// An operation that has begun and will end. Its end counts, or its being given up, whichever is first.
  class Task {
   public:
    virtual ~Task() = default;
    /// True once, for the first of the two.
    bool take() { return !taken_.exchange(true); }
    bool taken() const { return taken_.load(); }

   private:
    std::atomic<bool> taken_{false};
  };
  using TaskPtr = std::shared_ptr<Task>;

  /// `give_up` is called from the thread, without a lock, for tasks that it has taken.
  OverdueThread(const std::string& name, Duration patience, std::function<void(const TaskPtr&)> give_up);
  /// No task is given up any more.
  ~OverdueThread();
  /// The task begins.
  void add(TaskPtr task);

 private:
  /// Fewer that wait cost next to nothing; to look through so many costs little, once in as many calls.
  static constexpr size_t kSmallCrowd = 4096;
  struct Waiting {
    TimePoint due;
    TaskPtr task;
  };

  void run();
  void let_go_of_ended(std::vector<TaskPtr>& ended) REQUIRES(mutex_);

  const Duration patience_;
  const std::function<void(const TaskPtr&)> give_up_;

  Mutex mutex_;  // leaf
  CondVar wake_;
  std::deque<Waiting> waiting_ GUARDED_BY(mutex_);  // oldest first; some have ended
  size_t crowd_ GUARDED_BY(mutex_) = kSmallCrowd;   // so many are looked through for those
  bool idle_ GUARDED_BY(mutex_) = false;            // the thread waits for a task
  bool ending_ GUARDED_BY(mutex_) = false;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
