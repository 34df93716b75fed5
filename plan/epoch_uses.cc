#include "plan/epoch_uses.h"

#include <algorithm>

namespace clairfs {

// A counting sort. Most samples touch one chunk, so the touches of the first pass are kept as one chunk a
// position and a list of the few others, which spares a second walk through the catalog.
EpochUses::EpochUses(const EpochSequence& sequence, const SampleIndex& index, const Catalog& catalog)
    : epoch_(sequence.epoch()), starts_(catalog.chunk_count() + 1) {
  struct Touch {
    uint32_t position;
    uint32_t chunk;
  };
  const uint32_t first = std::min(sequence.first_position(), sequence.length());
  std::vector<uint32_t> main(sequence.length() - first, kNeverUsed);
  std::vector<Touch> others;
  for (uint32_t position = first; position < sequence.length(); ++position) {
    uint32_t& own = main[position - first];
    uint32_t last = kNeverUsed;
    for_each_chunk(index, catalog, sequence.sample_at(position), [&](ChunkId chunk) {
      if (chunk.value == last) return;
      last = chunk.value;
      ++starts_[chunk.index() + 1];
      if (own == kNeverUsed) {
        own = chunk.value;
      } else {
        others.push_back({position, chunk.value});
      }
    });
  }
  for (size_t chunk = 1; chunk < starts_.size(); ++chunk) starts_[chunk] += starts_[chunk - 1];

  // Filling moves each start to the next one's place; shifting by one puts them back.
  positions_.resize(starts_.back());
  auto other = others.begin();
  for (uint32_t position = first; position < sequence.length(); ++position) {
    if (const uint32_t chunk = main[position - first]; chunk != kNeverUsed) {
      positions_[starts_[chunk]++] = position;
    }
    for (; other != others.end() && other->position == position; ++other) {
      positions_[starts_[other->chunk]++] = position;
    }
  }
  std::copy_backward(starts_.begin(), starts_.end() - 1, starts_.end());
  starts_.front() = 0;
}

std::optional<uint32_t> EpochUses::next_use(ChunkId chunk, uint32_t from) const {
  const std::span<const uint32_t> all = uses(chunk);
  const auto at = std::lower_bound(all.begin(), all.end(), from);
  return at == all.end() ? std::nullopt : std::optional(*at);
}

uint64_t EpochUses::memory_bytes() const {
  return sizeof(*this) + (starts_.capacity() + positions_.capacity()) * sizeof(uint32_t);
}

}  // namespace clairfs
