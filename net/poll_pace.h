// How often a thread looks for what it cannot be woken for: MPI has nothing to sleep on.
#pragma once

#include <algorithm>
#include <chrono>

#include "cache/base/clock.h"

namespace clairfs {

/// While something happens: no pause at all. Then pauses of an eighth of the quiet time so far, so that
/// sleeping lengthens any wait by an eighth at most and a long quiet costs little. What is outstanding is
/// watched closely for longer, but not for ever: what a dead peer never completes must not cost a core. Not
/// thread-safe.
class PollPace {
 public:
  explicit PollPace(TimePoint now) : last_activity_(now) {}

  void activity(TimePoint now) { last_activity_ = now; }

  /// How long to sleep before the next look; 0: look again at once.
  Duration pause(TimePoint now, bool outstanding) const {
    const Duration quiet = now - last_activity_;
    if (quiet < (outstanding ? kHotOutstanding : kHotIdle)) return Duration::zero();
    return std::min<Duration>(quiet / 8, kLongestPause);
  }

  // A reply from a peer's NVMe tier takes about a millisecond.
  static constexpr Duration kHotOutstanding = std::chrono::milliseconds(2);
  // A peer's next request, when it sends one after the other: tens of microseconds.
  static constexpr Duration kHotIdle = std::chrono::microseconds(200);
  // 200 looks a second cost about 0.3 % of a core; it is also what the first request after a quiet time
  // waits.
  static constexpr Duration kLongestPause = std::chrono::milliseconds(5);

 private:
  TimePoint last_activity_;
};

}  // namespace clairfs
