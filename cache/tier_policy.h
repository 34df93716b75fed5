// The seam to the rule that says which chunk is kept where. Mechanism (ChunkCache) asks, policy answers.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/base/types.h"

namespace clairfs {

enum class Tier : uint8_t { none, ram, nvme };

/// Bytes that could be kept right now without dropping anything.
struct TierSpace {
  uint64_t ram = 0;
  uint64_t nvme = 0;
};

struct Placement {
  Tier tier = Tier::none;      ///< `none`: pass it to the readers and forget it
  std::vector<ChunkId> evict;  ///< dropped from memory first, to make room
};

/// Thread-safe; called without any lock held, for each chunk that is about to be fetched or was fetched.
class TierPolicy {
 public:
  virtual ~TierPolicy() = default;
  /// Where to keep a chunk of `bytes` (padding included) that is about to be fetched.
  virtual Placement place(ChunkId chunk, uint64_t bytes, const TierSpace& space) = 0;
};

/// Without a plan nothing is known of the future: the first chunks touched fill RAM, then NVMe, and stay.
class FirstTouchPolicy final : public TierPolicy {
 public:
  Placement place(ChunkId, uint64_t bytes, const TierSpace& space) override {
    if (bytes <= space.ram) return {Tier::ram, {}};
    if (bytes <= space.nvme) return {Tier::nvme, {}};
    return {};
  }
};

}  // namespace clairfs
