// How many operations the source gets at once: found by trying, since no two filesystems like the same
// number.
//
// It begins small and doubles while that pays, as slow start of TCP does (RFC 5681, section 3.1), but by
// throughput: nothing is lost here. Then hill climbing on throughput: over a window of completions the bytes
// per second are measured; then the limit takes a step in the direction that last helped, or turns round.
// More readers than a filesystem likes make it slower, fewer leave bandwidth unused; around the best value
// the limit keeps moving by one step, which costs little and follows changes (other jobs come and go).
//
// Why small: a filesystem that is busy serves in the order of arrival. What the nodes of a job ask for beyond
// what keeps it busy only makes a queue, in which that which is needed first stands behind that which is not.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/base/clock.h"

namespace clairfs {

/// Not thread-safe: its owner calls it under a lock.
class ConcurrencyLimit {
 public:
  /// Starts at `initial`, stays within [least, most], and at `most` where that is less than `least`.
  ConcurrencyLimit(unsigned initial, unsigned least, unsigned most)
      : least_(std::min(least, most)), most_(most), limit_(std::clamp(initial, least_, most_)) {}

  unsigned value() const { return limit_; }

  /// An operation of `bytes` has ended. `saturated`: others were waiting for a place, without which
  /// throughput says nothing about the limit.
  void completed(uint64_t bytes, bool saturated, TimePoint now);

 private:
  void adapt(double rate);

  const unsigned least_;
  const unsigned most_;
  unsigned limit_;
  bool starting_ = true;
  int direction_ = 1;
  double last_rate_ = 0;  // bytes per second of the window before
  uint64_t window_bytes_ = 0;
  unsigned window_count_ = 0;
  bool window_saturated_ = true;
  TimePoint window_start_{};
};

}  // namespace clairfs
