// OperationCost estimates what an operation costs a source beyond its bytes: so many bytes would the source
// read in that time. Where it has to seek for each that is much, where only its bandwidth is short nothing.
//
// While a source is busy, the time from the end of one operation to the end of the next is a + b x bytes of
// the latter. Least squares find both, and the cost is a / b. The latest operations count most. While all
// have the same size they tell nothing, and what is known stays. So it does while larger ones seem to take
// less time, which no source does: it is chance.
#pragma once

#include <cstdint>
#include <optional>

#include "cache/base/clock.h"

namespace clairfs {

/// Not thread-safe: its owner calls it under a lock.
class OperationCost {
 public:
  /// An operation of so many bytes has ended. `busy`: the source has others to do until the next one ends.
  void ended(uint64_t bytes, TimePoint now, bool busy);
  /// The cost of an operation in bytes; UINT64_MAX as long as nothing tells.
  uint64_t bytes() const { return known_.value_or(UINT64_MAX); }
  /// The most bytes that are better read with what lies beside them than later, by an operation of their own.
  /// 0 also where operations have told nothing because they are all alike: this makes them differ.
  uint64_t worth_taking_along() const;

 private:
  void estimate();

  TimePoint last_{};
  bool busy_ = false;  // since then
  uint64_t seen_ = 0;  // operations
  // Sums over them.
  double weights_ = 0;
  double sizes_ = 0;
  double times_ = 0;
  double squares_ = 0;  // of sizes
  double products_ = 0;
  bool alike_ = false;             // enough of them, of the same size
  std::optional<uint64_t> known_;  // bytes
};

}  // namespace clairfs
