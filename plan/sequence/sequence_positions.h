// SequencePositions tells where in an epoch a sample comes: the inverse of an EpochSequence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plan/sequence/access_sequence.h"

namespace clairfs {

/// Positions by sample, about five bytes a position however large the dataset is. Immutable after it was
/// made, so thread-safe without locks.
class SequencePositions {
 public:
  explicit SequencePositions(std::shared_ptr<const EpochSequence> sequence);

  const EpochSequence& sequence() const { return *sequence_; }
  /// The positions of a sample, ascending; several with replacement or padding, none if it belongs to another
  /// node. Costs a binary search in a bucket of a few positions.
  std::span<const uint32_t> of(uint32_t sample) const;
  /// All positions, by sample and position.
  std::span<const uint32_t> by_sample() const { return positions_; }
  uint64_t memory_bytes() const;  ///< without the sequence

 private:
  const std::shared_ptr<const EpochSequence> sequence_;
  uint32_t shift_ = 0;               ///< a bucket holds the positions of 2^shift_ neighbouring samples
  std::vector<uint32_t> starts_;     ///< buckets + 1, into positions_
  std::vector<uint32_t> positions_;  ///< by (sample, position)
};

}  // namespace clairfs
