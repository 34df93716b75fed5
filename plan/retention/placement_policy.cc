#include "plan/retention/placement_policy.h"

#include <algorithm>
#include <utility>

#include "cache/memory/ram_arena.h"

namespace clairfs {

void PlacementPolicy::set_placement(std::shared_ptr<const PlacementMap> placement, NodeId self) {
  MutexLock lock(mutex_);
  std::swap(placement_, placement);  // the old one is destroyed outside the lock
  self_ = self;
  for (const Tier tier : {Tier::ram, Tier::nvme}) {
    strays(tier).clear();
    if (!placement_) continue;
    for (const ChunkId chunk : single_.residents(tier)) {
      if (!has_place(chunk)) strays(tier).push_back(chunk);
    }
  }
}

// What has to leave so that `length` bytes fit the tier; nothing if that is not enough.
std::optional<std::vector<ChunkId>> PlacementPolicy::make_room(Tier tier, uint64_t length,
                                                               const TierSpace& space) const {
  const uint64_t bytes = footprint(tier, length);
  uint64_t room = tier == Tier::ram ? space.ram : space.nvme;
  if (tier == Tier::nvme && !space.nvme_writable) return std::nullopt;
  std::vector<ChunkId> leaving;
  std::vector<ChunkId>& list = strays(tier);
  for (size_t i = list.size(); i-- > 0 && room < bytes;) {
    const ChunkId chunk = list[i];
    const bool twice = std::find(leaving.begin(), leaving.end(), chunk) != leaving.end();
    if (twice || !single_.resident(chunk, tier)) {
      list[i] = list.back();  // one that has been looked at
      list.pop_back();
      continue;
    }
    leaving.push_back(chunk);
    room += footprint(tier, catalog_.range(chunk).length);
  }
  if (room < bytes) return std::nullopt;
  return leaving;
}

TierChoice PlacementPolicy::choose(ChunkId chunk, uint64_t length, const TierSpace& space) const {
  const Tier wanted = placement_->tier_at(self_, chunk);
  if (wanted == Tier::none) {
    return {placement_->covers(chunk) ? Tier::none : FirstTouchPolicy::tier(length, space), {}};
  }
  for (const Tier tier : {wanted, wanted == Tier::ram ? Tier::nvme : Tier::ram}) {
    if (auto leaving = make_room(tier, length, space)) return {tier, std::move(*leaving)};
  }
  return {};
}

TierChoice PlacementPolicy::choose_tier(ChunkId chunk, uint64_t length, const TierSpace& space,
                                        const Use& served) {
  MutexLock lock(mutex_);
  if (!placement_) return single_.choose_tier(chunk, length, space, served);
  TierChoice choice = choose(chunk, length, space);
  for (const ChunkId victim : choice.evict) single_.dropped(victim, choice.tier);
  return choice;
}

bool PlacementPolicy::would_keep(ChunkId chunk, uint64_t length, const TierSpace& space,
                                 const Use& served) const {
  MutexLock lock(mutex_);
  if (!placement_) return single_.would_keep(chunk, length, space, served);
  return choose(chunk, length, space).tier != Tier::none;
}

bool PlacementPolicy::belongs_in_ram(ChunkId chunk) const {
  MutexLock lock(mutex_);
  return placement_ && placement_->tier_at(self_, chunk) == Tier::ram;
}

void PlacementPolicy::kept(ChunkId chunk, Tier tier) {
  MutexLock lock(mutex_);
  single_.kept(chunk, tier);
  if (placement_ && !has_place(chunk)) strays(tier).push_back(chunk);
}

void PlacementPolicy::dropped(ChunkId chunk, Tier tier) {
  MutexLock lock(mutex_);
  single_.dropped(chunk, tier);
}

}  // namespace clairfs
