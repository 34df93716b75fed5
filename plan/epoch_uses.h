// When each chunk is touched in an epoch: what a tier needs to keep what is used soonest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog.h"
#include "plan/sample_index.h"
#include "plan/sequence_positions.h"

namespace clairfs {

/// The positions of a node's sequence, from first_position() on, at which each chunk is touched: four bytes a
/// touch and four a chunk. Immutable after it was made, so thread-safe without locks.
class EpochUses {
 public:
  /// Takes time in the order of the touches; a chunk that one sample touches twice counts once.
  EpochUses(const SequencePositions& positions, const SampleIndex& index, const Catalog& catalog);

  Epoch epoch() const { return epoch_; }
  /// Ascending. REQUIRES: a chunk of the catalog.
  std::span<const uint32_t> uses(ChunkId chunk) const {
    return std::span(positions_)
        .subspan(starts_[chunk.index()], starts_[chunk.index() + 1] - starts_[chunk.index()]);
  }
  std::optional<uint32_t> first_use(ChunkId chunk) const { return next_use(chunk, 0); }
  /// The first position at or after `from`. Costs a binary search over the chunk's uses.
  std::optional<uint32_t> next_use(ChunkId chunk, uint32_t from) const;
  uint64_t memory_bytes() const;

 private:
  const Epoch epoch_;
  std::vector<uint32_t> starts_;     ///< chunks + 1, into positions_
  std::vector<uint32_t> positions_;  ///< by (chunk, position)
};

}  // namespace clairfs
