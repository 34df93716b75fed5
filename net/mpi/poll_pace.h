// PollPace says how often a thread looks for what it cannot be woken for: MPI has nothing to sleep on.
#pragma once

#include <algorithm>
#include <chrono>

#include "cache/base/clock.h"

namespace clairfs {

/// While something happens (but for messages that nothing follows upon, see Transport::Handlers): no pause at
/// all. Then pauses of an eighth of the quiet time so far: sleeping lengthens any wait by an eighth at most,
/// and a long quiet, also that of a dead peer, costs next to nothing. Not thread-safe.
class PollPace {
 public:
  explicit PollPace(TimePoint now) : last_activity_(now) {}

  void activity(TimePoint now) { last_activity_ = now; }

  /// How long to sleep before the next look; 0: look again at once.
  Duration pause(TimePoint now) const {
    const Duration quiet = now - last_activity_;
    return quiet < kHot ? Duration::zero() : std::min<Duration>(quiet / 8, kLongestPause);
  }

  // A peer's answer from memory takes tens of microseconds, and so does its next request when it sends one
  // after the other. Longer ones wait for a disk, and a core is not to be spent on waiting.
  static constexpr Duration kHot = std::chrono::microseconds(200);
  // 200 looks a second cost 0.3 % of a core; it is also what the first request after a quiet time waits.
  static constexpr Duration kLongestPause = std::chrono::milliseconds(5);

 private:
  TimePoint last_activity_;
};

}  // namespace clairfs
