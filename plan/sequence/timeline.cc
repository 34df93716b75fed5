#include "plan/sequence/timeline.h"

#include <algorithm>
#include <utility>

namespace clairfs {
namespace {

// One position of so many may be a sample's second: a DistributedSampler pads with fewer, and of draws with
// replacement, as many as there are samples, more than every third is.
constexpr size_t kRepeated = 16;

// Positions that are looked at: enough to tell those two apart.
constexpr size_t kLookedAt = 1 << 16;

bool hardly_repeats(const SequencePositions& positions) {
  const auto samples = positions.sequence().samples();
  const auto by_sample = positions.by_sample();
  const size_t n = std::min(by_sample.size(), kLookedAt);
  size_t repeated = 0;
  for (size_t i = 1; i < n; ++i) repeated += samples[by_sample[i]] == samples[by_sample[i - 1]];
  return repeated * kRepeated <= n;
}

}  // namespace

PlannedEpoch PlannedEpoch::make(std::shared_ptr<const EpochSequence> sequence,
                                std::shared_ptr<const ChunkSamples> samples, const SampleIndex& index,
                                const Catalog& catalog) {
  PlannedEpoch planned;
  planned.sequence = std::move(sequence);
  planned.positions = std::make_shared<const SequencePositions>(planned.sequence);
  planned.uses_once = hardly_repeats(*planned.positions);
  planned.uses = std::make_shared<const EpochUses>(planned.positions, std::move(samples), index, catalog);
  return planned;
}

uint64_t PlannedEpoch::memory_bytes() const {
  return sequence->memory_bytes() + positions->memory_bytes() + uses->memory_bytes();
}

uint64_t Timeline::memory_bytes() const {
  uint64_t bytes = 0;
  for (const auto& epoch : epochs_) bytes += epoch->memory_bytes();
  return bytes;
}

const PlannedEpoch* Timeline::epoch_at(uint64_t position) const {
  for (const auto& epoch : epochs_) {
    if (position >= epoch->base && position < epoch->end()) return epoch.get();
  }
  return nullptr;
}

uint32_t Timeline::sample_at(uint64_t position) const {
  const PlannedEpoch* epoch = epoch_at(position);
  return epoch->sequence->sample_at(static_cast<uint32_t>(position - epoch->base));
}

PlanPosition Timeline::position_of(uint64_t position) const {
  const PlannedEpoch* epoch = epoch_at(position);
  if (epoch == nullptr) epoch = epochs_.back().get();
  return {epoch->epoch(), static_cast<uint32_t>(position - epoch->base)};
}

bool Timeline::uses_within(uint32_t sample, uint64_t from, uint64_t to) const {
  for (const auto& epoch : epochs_) {
    if (epoch->end() <= from) continue;
    if (epoch->base >= to) break;
    const auto uses = epoch->positions->of(sample);
    const auto start = static_cast<uint32_t>(std::max(from, epoch->base) - epoch->base);
    const auto use = std::lower_bound(uses.begin(), uses.end(), start);
    if (use != uses.end()) return epoch->base + *use < to;
  }
  return false;
}

std::optional<uint64_t> Timeline::next_use(ChunkId chunk, uint64_t from) const {
  for (const auto& epoch : epochs_) {
    if (from >= epoch->end()) continue;
    const auto start = static_cast<uint32_t>(std::max(from, epoch->base) - epoch->base);
    if (const auto use = epoch->uses->next_use(chunk, start)) return epoch->base + *use;
  }
  return std::nullopt;
}

Timeline::UseCount Timeline::count_uses(ChunkId chunk, uint64_t from) const {
  UseCount count;
  for (const auto& epoch : epochs_) {
    const auto uses = epoch->uses->uses(chunk);
    const uint64_t passed = std::clamp(from, epoch->base, epoch->end()) - epoch->base;
    count.to_come += static_cast<size_t>(uses.end() - std::lower_bound(uses.begin(), uses.end(), passed));
    count.an_epoch = std::max(count.an_epoch, uses.size());
  }
  return count;
}

}  // namespace clairfs
