// A thread that drives what works in steps. The steps themselves know no thread and no clock: tests take them
// one by one, at times that they choose.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "cache/base/clock.h"
#include "cache/base/thread.h"
#include "cache/tasks/alarm.h"

namespace clairfs {

/// A step's word on when the next one is due.
struct Turn {
  bool busy = false;                   ///< there is more to do at once
  std::optional<Duration> look_again;  ///< else: then at the latest, though nothing tells of a change
};

/// Calls `step` at once while there is more to do, else when the alarm rings. Alarm and clock outlive it.
class StepThread {
 public:
  using Step = std::function<Turn(TimePoint now)>;

  StepThread(const std::string& name, Alarm& alarm, const Clock& clock, Step step)
      : alarm_(alarm), clock_(clock), step_(std::move(step)), thread_(name, [this] { run(); }) {}
  ~StepThread() { stop(); }

  /// Waits for the step under way; none comes after it. Later calls do nothing.
  void stop() {
    alarm_.end();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    Turn turn;
    while (alarm_.wait(turn.look_again)) {
      do {
        turn = step_(clock_.now());
      } while (turn.busy && !alarm_.ended());
    }
  }

  Alarm& alarm_;
  const Clock& clock_;
  const Step step_;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
