#include "plan/sequence/shared_chunks.h"

#include <cstdint>
#include <utility>

namespace clairfs {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;  // no number of a sample

bool has_part_of_a_file(const SampleIndex& index, const Catalog& catalog, uint32_t sample) {
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.length != 0 && range.length != catalog.stamp(range.file).size) return true;
  }
  return false;
}

}  // namespace

// A file that is two samples is not shared in this sense: either of them uses all of it.
std::shared_ptr<const SharedChunks> SharedChunks::make(const SampleIndex& index, const Catalog& catalog) {
  std::vector<uint32_t> users;  // by chunk: the last sample seen
  std::vector<bool> shared;
  bool any = false;
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    if (!has_part_of_a_file(index, catalog, sample)) continue;
    if (users.empty()) {
      users.assign(catalog.chunk_count(), kNobody);
      shared.resize(catalog.chunk_count());
    }
    for_each_chunk(index, catalog, sample, [&](ChunkId chunk) {
      const uint32_t before = std::exchange(users[chunk.index()], sample);
      if (before == kNobody || before == sample) return;
      any = shared[chunk.index()] = true;
    });
  }
  if (!any) return nullptr;
  return std::shared_ptr<const SharedChunks>(new SharedChunks(std::move(shared)));
}

}  // namespace clairfs
