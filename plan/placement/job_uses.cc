#include "plan/placement/job_uses.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "plan/sequence/shared_chunks.h"

namespace clairfs {
namespace {

// Used in no epoch that was added.
constexpr uint32_t kNeverUsed = std::numeric_limits<uint32_t>::max();
// Samples without a chunk, in a table of chunks by sample.
constexpr uint32_t kNoChunk = std::numeric_limits<uint32_t>::max();
// Repeats that may wait to be merged, so that merging is rare; a quarter of a gigabyte holds ten times that.
constexpr size_t kFewRepeats = 1 << 20;

}  // namespace

JobUses::JobUses(const Catalog& catalog, uint32_t nodes)
    : catalog_(&catalog),
      nodes_(nodes),
      first_uses_(catalog.chunk_count(), kNeverUsed),
      unused_(catalog.chunk_count()) {}

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

// By file: whether samples of the index share a chunk of it.
std::vector<bool> JobUses::files_of_records(const SampleIndex& index) const {
  const auto shared = SharedChunks::make(index, *catalog_);
  if (!shared) return {};
  std::vector<bool> files(catalog_->size());
  for (FileId file(0); file.value < catalog_->size(); ++file.value) {
    const Catalog::Chunks range = catalog_->chunks(file);
    for (uint32_t i = 0; i < range.count && !files[file.index()]; ++i)
      files[file.index()] = shared->contains(ChunkId(range.first.value + i));
  }
  return files;
}

bool JobUses::add_records(const SampleIndex& index) {
  if (index_ == &index) return only_records_;
  index_ = &index;
  epoch_.reset();
  number_chunks(index);
  const std::vector<bool> files = files_of_records(index);
  only_records_ = !files.empty();
  if (files.empty()) return false;
  settled_ = false;
  records_.resize(chunks());
  const auto note = [&](const ByteRange& range) {
    if (range.length == 0) return;
    if (!files[range.file.index()]) return void(only_records_ = false);
    const uint32_t last = catalog_->chunk_at(range.file, range.offset + range.length - 1).value;
    for (uint32_t c = catalog_->chunk_at(range.file, range.offset).value; c <= last; ++c) records_[c] = true;
  };
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) note(index.range(sample, piece));
  }
  for (const ByteRange& range : index.shared_ranges()) note(range);
  return only_records_;
}

void JobUses::begin_epoch(const EpochSequence& sequence, const SampleIndex& index) {
  add_records(index);
  if (epoch_ == sequence.epoch()) return;
  epoch_ = sequence.epoch();
  base_ += longest_;
  longest_ = 0;
  all_used_before_ = unused_ == 0;
  epochs_.emplace_back(chunks(), kNobody);
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

void JobUses::add(const EpochSequence& sequence, const SampleIndex& index, NodeId node) {
  if (node.value >= nodes_) return;
  begin_epoch(sequence, index);
  settled_ = false;
  longest_ = std::max<uint64_t>(longest_, sequence.length());
  auto& users = epochs_.back();
  for_each_touch(sequence, index, [&](ChunkId chunk, uint32_t position) {
    if (of_records(chunk)) return;
    if (!all_used_before_) keep_first_use(chunk, position);
    uint16_t& user = users[chunk.index()];
    if (user == kNobody) {
      user = static_cast<uint16_t>(node.value);
      return;
    }
    if (again_.empty()) again_.resize(chunks());
    if (again_[chunk.index()]++ == 0) used_again_.push_back(chunk);
  });
  keep_repeats(node);
}

void JobUses::keep_first_use(ChunkId chunk, uint32_t position) {
  uint32_t& first = first_uses_[chunk.index()];
  if (first == kNeverUsed) --unused_;
  // What comes later than 32 bits can number is taken to come last.
  first = static_cast<uint32_t>(std::min<uint64_t>({first, base_ + position, kNeverUsed - 1}));
}

void JobUses::keep_repeats(NodeId node) {
  for (const ChunkId chunk : used_again_) {
    fresh_repeats_.push_back({chunk, node, again_[chunk.index()]});
    again_[chunk.index()] = 0;
  }
  used_again_.clear();
  if (fresh_repeats_.size() > std::max(kFewRepeats, repeats_.size())) merge_repeats();
}

void JobUses::settle_now() const {
  settled_ = true;
  merge_repeats();
  totals_.assign(chunks(), 0);
  for (const auto& users : epochs_) {
    for (size_t c = 0; c < totals_.size(); ++c) totals_[c] += users[c] != kNobody ? 1U : 0U;
  }
  for (const Repeat& repeat : repeats_) totals_[repeat.chunk.index()] += repeat.count;
  for (size_t c = 0; c < records_.size(); ++c) {  // another plan may have it as a sample
    if (records_[c]) totals_[c] = 0;
  }
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
  return std::lower_bound(repeats_.cbegin(), repeats_.cend(), chunk,
                          [](const Repeat& repeat, ChunkId wanted) { return repeat.chunk < wanted; });
}

void JobUses::finish() {
  settle();
  fresh_repeats_.shrink_to_fit();
  chunk_of_sample_ = {};
  again_ = {};
  used_again_ = {};
  index_ = nullptr;
}

uint32_t JobUses::uses(ChunkId chunk, NodeId node) const {
  uint32_t count = 0;
  for_each_use(chunk, [&](NodeId user, uint32_t times) {
    if (user == node) count += times;
  });
  return count;
}

std::vector<uint32_t> JobUses::uses_of(NodeId node) const {
  settle();
  std::vector<uint32_t> counts(chunks());
  // In blocks whose size the compiler knows, so that it uses vector instructions.
  constexpr size_t kBlock = 32;
  const auto wanted = static_cast<uint16_t>(node.value);
  size_t begin = 0;
  for (; begin + kBlock <= counts.size(); begin += kBlock) {
    std::array<uint16_t, kBlock> count{};
    for (const auto& users : epochs_) {
      const uint16_t* user = users.data() + begin;
      for (size_t i = 0; i < kBlock; ++i)
        count[i] = static_cast<uint16_t>(count[i] + (user[i] == wanted ? 1 : 0));
    }
    std::copy(count.begin(), count.end(), counts.begin() + static_cast<ptrdiff_t>(begin));
  }
  for (const auto& users : epochs_) {
    for (size_t c = begin; c < counts.size(); ++c) counts[c] += users[c] == node.value ? 1U : 0U;
  }
  for (const Repeat& repeat : repeats_) {
    if (repeat.node == node) counts[repeat.chunk.index()] += repeat.count;
  }
  for (size_t c = 0; c < records_.size(); ++c) {
    if (records_[c]) counts[c] = 0;
  }
  return counts;
}

uint64_t JobUses::memory_bytes() const {
  return sizeof(*this) + epochs_.size() * first_uses_.size() * sizeof(uint16_t) +
         (totals_.capacity() + first_uses_.capacity() + chunk_of_sample_.capacity() + again_.capacity()) *
             sizeof(uint32_t) +
         records_.capacity() / 8 + (repeats_.capacity() + fresh_repeats_.capacity()) * sizeof(Repeat);
}

}  // namespace clairfs
