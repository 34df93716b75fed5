// The thread that drives a Staging.
#pragma once

#include "cache/base/clock.h"
#include "cache/base/thread.h"
#include "plan/staging/staging.h"

namespace clairfs {

/// Gives `staging` its turns, at once while there is more to do, else when its alarm rings. Both outlive it.
class StagingThread {
 public:
  StagingThread(Staging& staging, const Clock& clock)
      : staging_(staging), clock_(clock), thread_("staging", [this] { run(); }) {}
  ~StagingThread() { stop(); }

  /// Waits for the turn under way, then stops `staging`. Before the mount stops to answer, since pushing may
  /// wait for it.
  void stop() {
    staging_.alarm().end();
    if (thread_.joinable()) thread_.join();
    staging_.stop();
  }

 private:
  void run() {
    Staging::Turn turn;
    while (staging_.alarm().wait(turn.look_again)) {
      do {
        turn = staging_.step(clock_.now());
      } while (turn.busy && !staging_.alarm().ended());
    }
  }

  Staging& staging_;
  const Clock& clock_;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
