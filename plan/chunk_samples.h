// Which sample a chunk belongs to, where it is never more than one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog.h"
#include "plan/sample_index.h"

namespace clairfs {

/// For datasets whose samples share no chunk (a sample is a file, and no file is two samples): when a chunk
/// is used follows from when its sample is, in every epoch. Four bytes a chunk, for all epochs together.
/// Immutable after it was made, so thread-safe without locks.
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

}  // namespace clairfs
