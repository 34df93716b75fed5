// Jobs that run when their time has come, on a pool of threads.
//
// One worker, the leader, sleeps until the first job is due; the others sleep until they are called, so that
// a due job wakes one thread and not all of them. A worker that takes a job first calls the next leader. A
// leader that wakes up, for whatever reason, looks at the queue again: `led_` false means that a running
// worker will do so.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs::slowfs {

enum class Outcome { due, interrupted, shut_down };

/// Thread-safe. Waiting jobs cost no thread, so any number may sleep at once; `threads` bounds those that
/// run. Every job runs exactly once, outside the lock.
class DelayQueue {
 public:
  using Job = std::function<void(Outcome)>;

  explicit DelayQueue(size_t threads);
  /// Runs what still waits with Outcome::shut_down, then joins.
  ~DelayQueue();

  /// Runs `job` at `due`. A `held` job (a non-zero tag of the caller's) can be let go early.
  void push(TimePoint due, Job job, uintptr_t held = 0);
  /// Makes all held jobs due now.
  void release_held();
  /// Makes the job held under this tag run now with Outcome::interrupted; no-op when there is none.
  void interrupt(uintptr_t held);

 private:
  struct Entry {
    Job job;
    uintptr_t held = 0;
    Outcome outcome = Outcome::due;
  };
  using Queue = std::multimap<TimePoint, Entry>;

  void run();
  void wake() REQUIRES(mutex_);
  Queue::iterator make_due(Queue::iterator entry) REQUIRES(mutex_);

  Mutex mutex_;
  Queue queue_ GUARDED_BY(mutex_);
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool led_ GUARDED_BY(mutex_) = false;
  CondVar earlier_;  ///< to the leader: the first entry is another one now
  CondVar idle_;     ///< to the rest: there may be a job, or a leader is wanted

  std::vector<NamedThread> threads_;  ///< constant after construction; last, so that it is joined first
};

}  // namespace clairfs::slowfs
