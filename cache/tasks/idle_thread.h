// IdleThread: work that is done when no core has anything else to do (SCHED_IDLE), and that the process need
// not wait for.
//
// On a machine whose cores are all busy such a thread gets some milliseconds a second. Only root may take a
// thread out of SCHED_IDLE again (sched(7); others from RLIMIT_NICE 1 on), so a process that ends may leave
// it behind.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"

namespace clairfs {

/// hurry() is thread-safe; the others are for the owner's thread.
class IdleThread {
 public:
  /// A thread that asks every few milliseconds whether to stop has ended by then, if it gets a processor.
  static constexpr auto kPatience = std::chrono::milliseconds(500);

  /// `work` owns all that it uses: it may outlive this. Without `when_idle` it runs as any other thread.
  IdleThread(const std::string& name, std::function<void()> work, bool when_idle = true);
  ~IdleThread() { wait(); }

  /// Waits until the work has ended; after hurry() for `patience` at most. False: it was left behind, and
  /// ends by itself, or with the process. Later calls repeat the answer.
  bool wait(Duration patience = kPatience);
  /// Waits for `patience` at most. True: the work has ended or was hurried, wait() is next.
  bool is_over_within(Duration patience);
  /// The work was told to stop: it runs as any other now, where that is allowed.
  void hurry();

 private:
  struct State {
    Mutex mutex;  // leaf
    CondVar changed;
    bool ended GUARDED_BY(mutex) = false;
    bool hurried GUARDED_BY(mutex) = false;
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::optional<bool> waited_;
  NamedThread thread_ GUARDED_BY(state_->mutex);  // from the first wait() on only the owner's
};

}  // namespace clairfs
