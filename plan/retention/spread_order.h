// SpreadOrder puts the chunks of a dataset in an order whose every beginning is spread evenly over the
// dataset: neighbours in a file are far from each other in it. What stays in a tier by this order is the same
// part of every file, and so of whatever an epoch reads for a while, in every order of files.
//
// The rank of chunk i of N is i·g mod N with g coprime to N and near N/φ: multiples of the golden ratio are
// spread more evenly than those of any other number (D. E. Knuth, "The Art of Computer Programming", volume
// 3, section 6.4, theorem S).
#pragma once

#include <cstdint>

#include "cache/base/types.h"

namespace clairfs {

/// A permutation of [0, count). A value, immutable; no memory, each question costs a division.
class SpreadOrder {
 public:
  explicit SpreadOrder(uint32_t count);

  uint32_t count() const { return count_; }
  /// REQUIRES: chunk < count().
  uint32_t rank(ChunkId chunk) const;
  /// The chunk with this rank. REQUIRES: rank < count().
  ChunkId at(uint32_t rank) const;

 private:
  uint32_t count_;
  uint64_t step_ = 1;     ///< g
  uint64_t inverse_ = 1;  ///< of g, modulo N
};

}  // namespace clairfs
