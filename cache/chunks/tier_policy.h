// The seam to the rule that says which chunk is kept where. Mechanism (ChunkCache) asks, policy answers.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/base/types.h"
#include "cache/memory/ram_arena.h"

namespace clairfs {

enum class Tier : uint8_t { none, ram, nvme };
/// How many values it has, `none` included: the size of what is kept by tier.
inline constexpr size_t kTierValues = 3;

/// Bytes that a chunk of `length` takes of a tier, padding included.
constexpr uint64_t footprint(Tier tier, uint64_t length) {
  return tier == Tier::ram ? round_to_ram_units(length) : round_to_pages(length);
}

/// Bytes that could be kept right now without dropping anything but copies (ram_backup.h), of which policies
/// do not know.
struct TierSpace {
  uint64_t ram = 0;
  uint64_t nvme = 0;
  bool nvme_writable = true;  ///< some store takes writes once there is room
  bool nvme_behind = false;   ///< with its writes, so that it has no room right now
};

/// An order of uses that the policy knows, by a number that no other ever has; 0: none.
using OrderId = Id<struct OrderTag>;

/// The use that a fetch is for: a place in an order. The caller that asks for the chunk names it; the cache
/// only hands it on. Without an order: no use that is known, or one that is far ahead (a tier is being
/// filled).
struct Use {
  OrderId order;
  uint64_t position = 0;
};

/// A policy's decision on one chunk.
struct TierChoice {
  Tier tier = Tier::none;      ///< `none`: pass it to the readers and forget it
  std::vector<ChunkId> evict;  ///< dropped from that tier first, to make room
};

/// Thread-safe. Calls nothing of the cache, which may hold a lock.
class TierPolicy {
 public:
  virtual ~TierPolicy() = default;
  /// Where to keep a chunk of `length` bytes that is about to be fetched for `served`, which needs no copy of
  /// it afterwards. The cache does as it is told; chunks to be evicted count as dropped from here on.
  virtual TierChoice choose_tier(ChunkId chunk, uint64_t length, const TierSpace& space,
                                 const Use& served) = 0;
  /// Whether choose_tier() would keep it anywhere. Nothing is kept or dropped by it.
  virtual bool would_keep(ChunkId chunk, uint64_t length, const TierSpace& space,
                          const Use& served) const = 0;
  /// Whether a chunk that is on NVMe is better in RAM, as long as RAM has room and NVMe could take another
  /// chunk instead.
  virtual bool belongs_in_ram(ChunkId) const { return false; }
  /// The outcome: a tier has the chunk now, or has it no more.
  virtual void kept(ChunkId, Tier) {}
  virtual void dropped(ChunkId, Tier) {}
};

/// Nothing is known of the future: the first chunks touched fill RAM, then NVMe, and stay.
class FirstTouchPolicy final : public TierPolicy {
 public:
  TierChoice choose_tier(ChunkId, uint64_t length, const TierSpace& space, const Use&) override {
    return {tier(length, space), {}};
  }
  bool would_keep(ChunkId, uint64_t length, const TierSpace& space, const Use&) const override {
    return tier(length, space) != Tier::none;
  }
  static Tier tier(uint64_t length, const TierSpace& space) {
    if (footprint(Tier::ram, length) <= space.ram) return Tier::ram;
    return footprint(Tier::nvme, length) <= space.nvme ? Tier::nvme : Tier::none;
  }
};

}  // namespace clairfs
