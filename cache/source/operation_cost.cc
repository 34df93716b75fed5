#include "cache/source/operation_cost.h"

#include <algorithm>
#include <chrono>

namespace clairfs {
namespace {

// The weight of an operation falls to a half within 34 more. In a model of a PFS whose answers are late by up
// to a millisecond at random the estimate is then right to some KiB.
constexpr double kForget = 0.98;

// Operations without which nothing is believed. Until then chunks come whole, which delays the first readers;
// an estimate that is wrong by some tens of KiB is right again a few operations later.
constexpr uint64_t kLeastSeen = 16;

// Sizes whose standard deviation is less than an eighth of their mean are too much alike to tell.
constexpr double kLeastSpread = 1.0 / 64;

// An operation that is saved brings the end of an epoch nearer by its cost. Bytes ahead of their turn delay a
// reader at most by what they take, and often not at all: where it computes little it waits for the last
// bytes anyway. In a model of records of 110,000 bytes in chunks of 128 KiB the first epoch is up to 11 %
// longer than with whole chunks if as many bytes as the cost come along, up to 3 % if four times as many do.
constexpr uint64_t kAlong = 4;

}  // namespace

void OperationCost::ended(uint64_t bytes, TimePoint now, bool busy) {
  if (busy_) {
    const auto size = static_cast<double>(bytes);
    const double time = std::chrono::duration<double>(now - last_).count();
    weights_ = weights_ * kForget + 1;
    sizes_ = sizes_ * kForget + size;
    times_ = times_ * kForget + time;
    squares_ = squares_ * kForget + size * size;
    products_ = products_ * kForget + size * time;
    if (++seen_ >= kLeastSeen) estimate();
  }
  busy_ = busy;
  last_ = now;
}

void OperationCost::estimate() {
  const double size = sizes_ / weights_;
  const double time = times_ / weights_;
  const double variance = squares_ / weights_ - size * size;
  const double covariance = products_ / weights_ - size * time;
  alike_ = variance <= kLeastSpread * size * size;
  if (alike_ || covariance <= 0) return;
  constexpr double kMost = 1e18;  // that a number of bytes holds
  known_ = static_cast<uint64_t>(std::clamp(time * variance / covariance - size, 0.0, kMost));
}

uint64_t OperationCost::worth_taking_along() const {
  if (alike_ && !known_) return 0;
  const uint64_t cost = bytes();
  return cost > UINT64_MAX / kAlong ? UINT64_MAX : kAlong * cost;
}

}  // namespace clairfs
