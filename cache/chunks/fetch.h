// A chunk on its way into memory, as an object: from the first caller's request until all callers are
// answered.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "cache/chunks/tier_policy.h"
#include "cache/memory/chunk_data.h"
#include "cache/source/demand.h"

namespace clairfs {

/// A chunk in memory, and how it came to the caller.
struct AcquiredChunk {
  ChunkRef data;
  Origin origin = Origin::ram;  ///< where this caller's bytes came from
  bool joined = false;          ///< another caller's fetch was already under way
  uint64_t start = 0;  ///< where in the chunk `data` begins; other than 0 only for a range read through
};

using AcquireDone = std::function<void(Result<AcquiredChunk>)>;

struct Fetch {
  Fetch(ChunkId wanted, Priority priority) : chunk(wanted), demand(priority) {}

  const ChunkId chunk;
  Demand demand;

  // Guarded by the chunk's shard of the ChunkTable.
  std::vector<AcquireDone> waiters;  // the first one started it, the others joined
  // For another node; never turns true later. Only the thread that carries the fetch on writes it, and reads
  // it without the lock.
  bool may_wait = false;
  Use use;  // that it is for: of the first caller that named one

  // Of the thread that carries the fetch on; one at a time.
  ChunkRef data;
  Tier keep = Tier::none;       // where it is to stay
  Tier promised = Tier::none;   // where it has room that is promised, and not taken yet
  std::optional<size_t> store;  // the NVMe store that it comes from
  uint64_t others_transit = 0;  // bytes that count against TransitShares::others
  uint64_t nvme_transit = 0;    // bytes that count against TransitShares::from_nvme
};

using FetchPtr = std::shared_ptr<Fetch>;

/// The demand of a fetch, which keeps the fetch.
inline std::shared_ptr<const Demand> demand_of(const FetchPtr& fetch) {
  return {fetch, &fetch->demand};
}

}  // namespace clairfs
