#include "plan/sequence/epoch_uses.h"

#include <algorithm>
#include <numeric>

namespace clairfs {

namespace {

struct Touch {
  uint32_t chunk;
  uint32_t position;
};

// Samples are mostly numbered as the catalog numbers files, so walking by sample reads the catalog from front
// to back: several times faster than in the shuffled order, which misses the CPU's caches at every file.
// Where many samples share a chunk (rows of an array) the few chunks stay in the caches, and by position the
// touches of each come sorted.
std::vector<Touch> touches_of(const SequencePositions& positions, const SampleIndex& index,
                              const Catalog& catalog) {
  const EpochSequence& sequence = positions.sequence();
  std::vector<Touch> touches;
  touches.reserve(sequence.length());
  const auto add = [&](uint32_t position) {
    if (position < sequence.first_position()) return;
    const size_t before = touches.size();
    for_each_chunk(index, catalog, sequence.sample_at(position), [&](ChunkId chunk) {
      if (touches.size() > before && touches.back().chunk == chunk.value) return;
      touches.push_back({chunk.value, position});
    });
  };
  if (sequence.length() / 4 > catalog.chunk_count()) {
    for (uint32_t position = 0; position < sequence.length(); ++position) add(position);
  } else {
    for (const uint32_t position : positions.by_sample()) add(position);
  }
  return touches;
}

}  // namespace

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

EpochUses::EpochUses(std::shared_ptr<const SequencePositions> positions,
                     std::shared_ptr<const ChunkSamples> samples, const SampleIndex& index,
                     const Catalog& catalog)
    : positions_(std::move(positions)), samples_(std::move(samples)) {
  if (samples_) return;
  starts_.resize(catalog.chunk_count() + 1);
  const std::vector<Touch> touches = touches_of(*positions_, index, catalog);
  for (const Touch& touch : touches) ++starts_[touch.chunk + 1];
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  touches_.resize(touches.size());
  // Filling moves each start to the next one's place; shifting by one puts them back.
  for (const Touch& touch : touches) touches_[starts_[touch.chunk]++] = touch.position;
  std::copy_backward(starts_.begin(), starts_.end() - 1, starts_.end());
  starts_.front() = 0;
  for (size_t chunk = 0; chunk + 1 < starts_.size(); ++chunk) {
    if (starts_[chunk + 1] - starts_[chunk] < 2) continue;
    std::sort(touches_.begin() + starts_[chunk], touches_.begin() + starts_[chunk + 1]);
  }
}

std::span<const uint32_t> EpochUses::uses(ChunkId chunk) const {
  if (!samples_) {
    const uint32_t start = starts_[chunk.index()];
    return std::span(touches_).subspan(start, starts_[chunk.index() + 1] - start);
  }
  const uint32_t sample = samples_->of(chunk);
  if (sample == ChunkSamples::kNone) return {};
  const std::span<const uint32_t> all = positions_->of(sample);
  const uint32_t first = positions_->sequence().first_position();
  return all.subspan(static_cast<size_t>(std::lower_bound(all.begin(), all.end(), first) - all.begin()));
}

std::optional<uint32_t> EpochUses::next_use(ChunkId chunk, uint32_t from) const {
  const std::span<const uint32_t> all = uses(chunk);
  const auto at = std::lower_bound(all.begin(), all.end(), from);
  return at == all.end() ? std::nullopt : std::optional(*at);
}

uint64_t EpochUses::memory_bytes() const {
  return sizeof(*this) + (starts_.capacity() + touches_.capacity()) * sizeof(uint32_t);
}

}  // namespace clairfs
