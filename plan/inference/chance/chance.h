// The chance that an order which has nothing to do with a reader explains what was seen of it.
#pragma once

#include <cstdint>
#include <optional>

namespace clairfs {

/// Most wrong locks that one search of seeds allows, over all orders that it tries and those before it. A
/// mount makes many of them, and believes less (fit.h).
inline constexpr double kMostWrongLocks = 1e-9;

/// `seen` samples of `n`, of which an order that is tried has `reach` at its beginning.
struct Draw {
  uint64_t n = 0;
  uint64_t reach = 0;  ///< at most n
  uint64_t seen = 0;   ///< at most n
};

/// The probability that a random order explains `explained` of them or more, that is, has them within its
/// reach; as natural logarithm, since it is soon smaller than any double. Exact: the tail of the
/// hypergeometric distribution.
double log_chance(const Draw& draw, uint64_t explained);

/// How many must be explained for the chance to stay below kMostWrongLocks over `orders` orders. Nothing if
/// all of them are not enough: more must be seen.
std::optional<uint64_t> explained_needed(const Draw& draw, double orders);

}  // namespace clairfs
