// EpochUses knows when each chunk is touched in an epoch. A tier needs that to keep what is used soonest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/sequence/sequence_positions.h"

namespace clairfs {

/// Which sample a chunk belongs to, where it is never more than one: in datasets whose samples share no chunk
/// (a sample is a file, and no file is two samples): when a chunk is used follows from when its sample is, in
/// every epoch. Four bytes a chunk, for all epochs together. Immutable after it was made, so thread-safe
/// without locks.
class ChunkSamples {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;  ///< no number of a sample

  /// Null if some chunk belongs to several samples. Takes time in the order of the samples' chunks.
  static std::shared_ptr<const ChunkSamples> make(const SampleIndex& index, const Catalog& catalog);

  /// kNone if the chunk is no sample's. REQUIRES: a chunk of the catalog.
  uint32_t of(ChunkId chunk) const { return samples_[chunk.index()]; }
  uint64_t memory_bytes() const { return sizeof(*this) + samples_.capacity() * sizeof(uint32_t); }

 private:
  explicit ChunkSamples(std::vector<uint32_t> samples) : samples_(std::move(samples)) {}

  const std::vector<uint32_t> samples_;  ///< by chunk
};

/// The positions of a node's sequence, from first_position() on, at which each chunk is touched. Immutable
/// after it was made, so thread-safe without locks. Takes no memory where `samples` says which sample a chunk
/// belongs to; else four bytes a touch and four a chunk.
class EpochUses {
 public:
  /// `samples`: of the same index and catalog, or null. Takes time in the order of the touches unless it is
  /// given; a chunk that one sample touches twice counts once.
  EpochUses(std::shared_ptr<const SequencePositions> positions, std::shared_ptr<const ChunkSamples> samples,
            const SampleIndex& index, const Catalog& catalog);

  Epoch epoch() const { return positions_->sequence().epoch(); }
  /// Ascending. REQUIRES: a chunk of the catalog.
  std::span<const uint32_t> uses(ChunkId chunk) const;
  std::optional<uint32_t> first_use(ChunkId chunk) const { return next_use(chunk, 0); }
  /// The first position at or after `from`. Costs a binary search over the chunk's uses.
  std::optional<uint32_t> next_use(ChunkId chunk, uint32_t from) const;
  uint64_t memory_bytes() const;  ///< without the positions and samples

 private:
  const std::shared_ptr<const SequencePositions> positions_;
  const std::shared_ptr<const ChunkSamples> samples_;
  // Empty if there is `samples_`.
  std::vector<uint32_t> starts_;   ///< chunks + 1, into touches_
  std::vector<uint32_t> touches_;  ///< positions by (chunk, position)
};

}  // namespace clairfs
