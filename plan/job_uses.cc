#include "plan/job_uses.h"

#include <algorithm>
#include <tuple>

namespace clairfs {
namespace {

// Used in no epoch that was added.
constexpr uint32_t kNever = std::numeric_limits<uint32_t>::max();
// Samples without a chunk, in a table of chunks by sample.
constexpr uint32_t kNoChunk = std::numeric_limits<uint32_t>::max();
// Repeats that may wait to be merged, so that merging is rare; a quarter of a gigabyte holds ten times that.
constexpr size_t kFewRepeats = 1 << 20;

}  // namespace

JobUses::JobUses(const Catalog& catalog, uint32_t nodes)
    : catalog_(&catalog),
      nodes_(nodes),
      totals_(catalog.chunk_count()),
      first_uses_(catalog.chunk_count(), kNever) {}

// Following a sample to its chunk through index and catalog costs several cache misses; with one chunk a
// sample, as files mostly have it, a table costs one. Empty if some sample has several chunks, or if there
// are so many samples a chunk that the catalog's rows stay in the caches anyway.
void JobUses::number_chunks(const SampleIndex& index) {
  chunk_of_sample_.clear();
  if (index.size() / 4 > catalog_->chunk_count()) return;
  chunk_of_sample_.reserve(index.size());
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    uint32_t only = kNoChunk;
    bool several = false;
    for_each_chunk(index, *catalog_, sample, [&](ChunkId chunk) {
      several = several || (only != kNoChunk && only != chunk.value);
      only = chunk.value;
    });
    if (several) return chunk_of_sample_.clear();
    chunk_of_sample_.push_back(only);
  }
}

void JobUses::begin_epoch(const EpochSequence& sequence, const SampleIndex& index) {
  if (index_ == &index && epoch_ == sequence.epoch() && !epochs_.empty()) return;
  if (index_ != &index) number_chunks(index);
  index_ = &index;
  epoch_ = sequence.epoch();
  base_ += longest_;
  longest_ = 0;
  epochs_.emplace_back(totals_.size(), kNobody);
}

template <class Visit>
void JobUses::for_each_touch(const EpochSequence& sequence, const SampleIndex& index, Visit&& visit) const {
  for (uint32_t position = sequence.first_position(); position < sequence.length(); ++position) {
    const uint32_t sample = sequence.sample_at(position);
    if (!chunk_of_sample_.empty()) {
      if (chunk_of_sample_[sample] != kNoChunk) visit(ChunkId(chunk_of_sample_[sample]), position);
      continue;
    }
    uint32_t before = kNoChunk;
    for_each_chunk(index, *catalog_, sample, [&](ChunkId chunk) {
      if (chunk.value != before) visit(chunk, position);
      before = chunk.value;
    });
  }
}

void JobUses::add(const EpochSequence& sequence, const SampleIndex& index, Rank node) {
  if (node.value >= nodes_) return;
  begin_epoch(sequence, index);
  longest_ = std::max<uint64_t>(longest_, sequence.length());
  auto& users = epochs_.back();
  for_each_touch(sequence, index, [&](ChunkId chunk, uint32_t position) {
    const size_t c = chunk.index();
    ++totals_[c];
    const uint64_t at = std::min<uint64_t>(base_ + position, kNever - 1);
    if (at < first_uses_[c]) first_uses_[c] = static_cast<uint32_t>(at);
    if (users[c] == kNobody) {
      users[c] = static_cast<uint16_t>(node.value);
      return;
    }
    if (again_.empty()) again_.resize(totals_.size());
    if (again_[c]++ == 0) used_again_.push_back(chunk);
  });
  keep_repeats(node);
}

void JobUses::keep_repeats(Rank node) {
  for (const ChunkId chunk : used_again_) {
    fresh_repeats_.push_back({chunk, node, again_[chunk.index()]});
    again_[chunk.index()] = 0;
  }
  used_again_.clear();
  if (fresh_repeats_.size() > std::max(kFewRepeats, repeats_.size())) merge_repeats();
}

void JobUses::merge_repeats() const {
  if (fresh_repeats_.empty()) return;
  const auto key = [](const Repeat& repeat) { return std::tie(repeat.chunk, repeat.node); };
  const auto before = [&](const Repeat& a, const Repeat& b) { return key(a) < key(b); };
  std::sort(fresh_repeats_.begin(), fresh_repeats_.end(), before);
  std::vector<Repeat> merged;
  merged.reserve(repeats_.size() + fresh_repeats_.size());
  const auto append = [&](const Repeat& repeat) {
    if (!merged.empty() && key(merged.back()) == key(repeat)) {
      merged.back().count += repeat.count;
    } else {
      merged.push_back(repeat);
    }
  };
  auto fresh = fresh_repeats_.cbegin();
  for (const Repeat& repeat : repeats_) {
    for (; fresh != fresh_repeats_.cend() && before(*fresh, repeat); ++fresh) append(*fresh);
    append(repeat);
  }
  for (; fresh != fresh_repeats_.cend(); ++fresh) append(*fresh);
  repeats_ = std::move(merged);
  fresh_repeats_.clear();
}

std::vector<JobUses::Repeat>::const_iterator JobUses::first_repeat(ChunkId chunk) const {
  merge_repeats();
  return std::lower_bound(repeats_.cbegin(), repeats_.cend(), chunk,
                          [](const Repeat& repeat, ChunkId wanted) { return repeat.chunk < wanted; });
}

void JobUses::finish() {
  merge_repeats();
  fresh_repeats_.shrink_to_fit();
  chunk_of_sample_ = {};
  again_ = {};
  used_again_ = {};
  index_ = nullptr;
}

uint32_t JobUses::uses(ChunkId chunk, Rank node) const {
  uint32_t count = 0;
  for_each_use(chunk, [&](Rank user, uint32_t times) {
    if (user == node) count += times;
  });
  return count;
}

std::vector<uint32_t> JobUses::uses_of(Rank node) const {
  merge_repeats();
  std::vector<uint32_t> counts(totals_.size());
  for (const auto& users : epochs_) {
    for (size_t c = 0; c < counts.size(); ++c) counts[c] += users[c] == node.value ? 1U : 0U;
  }
  for (const Repeat& repeat : repeats_) {
    if (repeat.node == node) counts[repeat.chunk.index()] += repeat.count;
  }
  return counts;
}

std::vector<ChunkId> JobUses::first_use_order() const {
  std::vector<std::pair<uint32_t, ChunkId>> order;
  for (uint32_t c = 0; c < chunks(); ++c) {
    if (first_uses_[c] != kNever) order.emplace_back(first_uses_[c], ChunkId(c));
  }
  std::sort(order.begin(), order.end());
  std::vector<ChunkId> chunks;
  chunks.reserve(order.size());
  for (const auto& entry : order) chunks.push_back(entry.second);
  return chunks;
}

uint64_t JobUses::memory_bytes() const {
  return sizeof(*this) + epochs_.size() * totals_.size() * sizeof(uint16_t) +
         (totals_.capacity() + first_uses_.capacity() + chunk_of_sample_.capacity() + again_.capacity()) *
             sizeof(uint32_t) +
         (repeats_.capacity() + fresh_repeats_.capacity()) * sizeof(Repeat);
}

}  // namespace clairfs
