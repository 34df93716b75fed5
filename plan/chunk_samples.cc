#include "plan/chunk_samples.h"

namespace clairfs {

std::shared_ptr<const ChunkSamples> ChunkSamples::make(const SampleIndex& index, const Catalog& catalog) {
  std::vector<uint32_t> samples(catalog.chunk_count(), kNone);
  bool shared = false;
  for (uint32_t sample = 0; sample < index.size() && !shared; ++sample) {
    for_each_chunk(index, catalog, sample, [&](ChunkId chunk) {
      uint32_t& of = samples[chunk.index()];
      shared = shared || (of != kNone && of != sample);
      of = sample;
    });
  }
  if (shared) return nullptr;
  return std::shared_ptr<const ChunkSamples>(new ChunkSamples(std::move(samples)));
}

}  // namespace clairfs
