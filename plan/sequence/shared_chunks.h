// SharedChunks knows which chunks hold parts of several samples: records in large files. Such a chunk is used
// several times an epoch, and each time only a part of it.
#pragma once

#include <memory>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// Immutable after it was made, so thread-safe without locks. Memory: one bit a chunk.
class SharedChunks {
 public:
  /// Null if there is none: each sample is whole files, or no chunk belongs to two of them. Takes time in the
  /// order of the samples' chunks, and four bytes a chunk as long as it takes.
  static std::shared_ptr<const SharedChunks> make(const SampleIndex& index, const Catalog& catalog);

  /// REQUIRES: a chunk of the catalog.
  bool contains(ChunkId chunk) const { return shared_[chunk.index()]; }

 private:
  explicit SharedChunks(std::vector<bool> shared) : shared_(std::move(shared)) {}

  const std::vector<bool> shared_;  ///< by chunk
};

}  // namespace clairfs
