// PollPace says how often the net thread looks for messages: MPI has nothing that a thread could sleep on.
#pragma once

#include <algorithm>
#include <chrono>

#include "cache/base/clock.h"

namespace clairfs {

/// While something happens there is no pause (messages that nothing follows upon do not count, see
/// Transport::Handlers). Then a pause is an eighth of the quiet time so far, up to kLongPause: sleeping
/// lengthens any wait by an eighth at most. After a long quiet it is a hundredth of it, up to kLongestPause:
/// a node that nobody asks for anything, or whose peers are dead, costs next to nothing. A message does not
/// wait for the end of such a pause: NetworkSleep makes it short where the network cannot end it. Not
/// thread-safe.
class PollPace {
 public:
  explicit PollPace(TimePoint now) : last_activity_(now) {}

  void activity(TimePoint now) { last_activity_ = now; }

  /// How long to sleep before the next look; 0: look again at once.
  Duration pause(TimePoint now) const {
    const Duration quiet = now - last_activity_;
    if (quiet < kHot) return Duration::zero();
    return std::min({quiet / 8, std::max(quiet / 100, kLongPause), kLongestPause});
  }

  // A peer's answer from memory takes tens of microseconds, and so does its next request when it sends one
  // after the other. Longer ones wait for a disk, and a core is not to be spent on waiting.
  static constexpr Duration kHot = std::chrono::microseconds(200);
  // The longest wait of a request, if its reader computes for less than half a second between batches. The
  // 200 looks a second cost 0.4 % of a core.
  static constexpr Duration kLongPause = std::chrono::milliseconds(5);
  // After 5 s of quiet. The 20 looks a second cost 0.04 % of a core.
  static constexpr Duration kLongestPause = std::chrono::milliseconds(50);

 private:
  TimePoint last_activity_;
};

}  // namespace clairfs
