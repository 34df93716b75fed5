// PlacementPolicy has the tiers of a node in a job keep what the placement gives it.
//
// A placed chunk takes the tier that the placement says, or the node's other one if there is no room. Nothing
// placed is ever dropped. A chunk that lies here without a place (from before the plan, or from an earlier
// placement) stays as long as there is room, and goes when a placed chunk needs it. A chunk that a plan uses
// but that lives elsewhere, or nowhere, is passed on and forgotten; files of no plan take what is free, first
// touch.
//
// Without a placement everything is left to the policy of a single node, which is told in any case what
// became of each chunk.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/tier_policy.h"
#include "plan/placement/placement_map.h"
#include "plan/retention/next_use_policy.h"

namespace clairfs {

/// Thread-safe: one lock, held for microseconds, but in set_placement() for time in the order of the chunks.
/// Catalog and `single` outlive it; only this policy tells `single` of chunks.
class PlacementPolicy final : public TierPolicy {
 public:
  PlacementPolicy(const Catalog& catalog, NextUsePolicy& single) : catalog_(catalog), single_(single) {}

  /// From now on `self` keeps what `placement` gives it; null: as a single node.
  void set_placement(std::shared_ptr<const PlacementMap> placement, NodeId self);

  TierChoice choose_tier(ChunkId chunk, uint64_t length, const TierSpace& space, const Use& served) override;
  bool would_keep(ChunkId chunk, uint64_t length, const TierSpace& space, const Use& served) const override;
  bool belongs_in_ram(ChunkId chunk) const override;
  void kept(ChunkId chunk, Tier tier) override;
  void dropped(ChunkId chunk, Tier tier) override;

 private:
  TierChoice choose(ChunkId chunk, uint64_t length, const TierSpace& space) const REQUIRES(mutex_);
  std::optional<std::vector<ChunkId>> make_room(Tier tier, uint64_t length, const TierSpace& space) const
      REQUIRES(mutex_);
  std::vector<ChunkId>& strays(Tier tier) const REQUIRES(mutex_) {
    return strays_[tier == Tier::ram ? 0 : 1];
  }
  bool has_place(ChunkId chunk) const REQUIRES(mutex_) {
    return placement_->tier_at(self_, chunk) != Tier::none;
  }

  const Catalog& catalog_;
  NextUsePolicy& single_;

  mutable Mutex mutex_;  // before the lock of single_
  std::shared_ptr<const PlacementMap> placement_ GUARDED_BY(mutex_);
  NodeId self_ GUARDED_BY(mutex_);
  // Residents without a place, in RAM and on NVMe. Chunks that were dropped since are passed over.
  mutable std::array<std::vector<ChunkId>, 2> strays_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
