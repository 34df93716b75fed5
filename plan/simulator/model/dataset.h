// A scenario's samples as the daemon's code sees a dataset: a catalog with one file, of one chunk, for each
// sample.
#pragma once

#include <memory>
#include <vector>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/sequence/access_sequence.h"
#include "plan/simulator/model/job_order.h"

namespace clairfs {

/// Immutable after it was made, so thread-safe without locks. About 110 bytes a sample.
class ScenarioDataset {
 public:
  /// `sizes`: MB by sample; an empty sample counts as one byte. Errors: ENOMEM.
  static Result<std::unique_ptr<const ScenarioDataset>> make(const std::vector<float>& sizes);

  const Catalog& catalog() const { return *catalog_; }
  const SampleIndex& index() const { return *index_; }
  uint32_t sample_of(ChunkId chunk) const { return chunk.value; }
  ChunkId chunk_of(uint32_t sample) const { return ChunkId(sample); }

 private:
  explicit ScenarioDataset(std::shared_ptr<const Catalog> catalog);

  std::shared_ptr<const Catalog> catalog_;
  std::unique_ptr<const SampleIndex> index_;
};

/// The sequence of worker `w` in an epoch, as the daemon's code takes it.
EpochSequence node_sequence(const JobOrder& job, const EpochOrder& order, Epoch epoch, uint32_t w);

}  // namespace clairfs
