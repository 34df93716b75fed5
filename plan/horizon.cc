#include "plan/horizon.h"

#include <algorithm>

namespace clairfs {

const PlannedEpoch* Horizon::epoch_at(uint64_t position) const {
  for (const auto& epoch : epochs) {
    if (position >= epoch->base && position < epoch->end()) return epoch.get();
  }
  return nullptr;
}

uint32_t Horizon::sample_at(uint64_t position) const {
  const PlannedEpoch* epoch = epoch_at(position);
  return epoch->sequence->sample_at(static_cast<uint32_t>(position - epoch->base));
}

std::optional<uint64_t> Horizon::next_use(ChunkId chunk, uint64_t from) const {
  for (const auto& epoch : epochs) {
    if (from >= epoch->end()) continue;
    const auto start = static_cast<uint32_t>(std::max(from, epoch->base) - epoch->base);
    if (const auto use = epoch->uses->next_use(chunk, start)) return epoch->base + *use;
  }
  return std::nullopt;
}

}  // namespace clairfs
