// WindUp says when a thread that polls the network may end: nothing leaves but while it looks.
#pragma once

#include <algorithm>
#include <chrono>

#include "cache/base/clock.h"

namespace clairfs {

/// Counts what passes between two looks as one look's time at most. A thread that got no processor for a
/// while has sent nothing meanwhile, and its last words must not be lost for that. Bounded all the same: a
/// fixed number of looks is always enough. Not thread-safe.
class WindUp {
 public:
  explicit WindUp(TimePoint stop_by) : stop_by_(stop_by) {}

  /// Before each look for what is still to be sent: whether it is worth it.
  bool sends_on(TimePoint now, bool all_left) {
    if (all_left || (now >= stop_by_ && looks_ >= kLeastLooks)) return false;
    ++looks_;
    return true;
  }

  /// Before each look after that: whether it is worth it. `receiving`: there are receives that do not end.
  bool lingers_on(TimePoint now, bool receiving) {
    if (last_look_ < now) lingered_ += std::min<Duration>(now - last_look_, kOneLook);
    last_look_ = now;
    return lingered_ < (receiving ? kLinger + kCancelling : kLinger);
  }

  // MPI says that a message has left when it may still lie in a buffer that only polling empties.
  static constexpr Duration kLinger = std::chrono::milliseconds(10);
  // Cancelling takes MPI one or two polls, unless a transfer has begun.
  static constexpr Duration kCancelling = std::chrono::milliseconds(90);
  // A look takes microseconds; a scheduler that gives others a turn in between takes several of these.
  static constexpr Duration kOneLook = std::chrono::milliseconds(1);
  // The first begins what was queued, the second ends it; the rest is for what fills a buffer.
  static constexpr int kLeastLooks = 10;

 private:
  const TimePoint stop_by_;
  int looks_ = 0;
  TimePoint last_look_ = TimePoint::max();  // none yet
  Duration lingered_{};
};

}  // namespace clairfs
