// Fetch: a chunk on its way into memory, as an object, from the first caller's request until all callers are
// answered.
//
// A chunk may come in parts: those that callers need soon first, then the rest (ChunkTable::split()). All
// parts go to their places in the same memory. The fetch answers a caller as soon as the parts that it wants
// are here. That caller must not look at the other bytes. The chunk counts as on its way until all parts are
// here, so no other caller sees it with gaps.
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
  ChunkRef data;  ///< of a range that was asked for: only the bytes of that range are sure to be there
  Origin origin = Origin::ram;  ///< where this caller's bytes came from
  bool joined = false;          ///< another caller's fetch was already under way
  uint64_t start = 0;  ///< where in the chunk `data` begins; other than 0 only for a range read through
};

using AcquireDone = std::function<void(Result<AcquiredChunk>)>;

/// Bytes [begin, end) of a chunk; by default all that it has.
struct ChunkPiece {
  uint64_t begin = 0;
  uint64_t end = UINT64_MAX;
};

/// A part of a chunk, which the fetch asks of the source by itself.
struct FetchPart {
  FetchPart(const ChunkPiece& bytes, Priority priority) : piece(bytes), demand(priority) {}

  bool has_some_of(const ChunkPiece& other) const {
    return piece.begin < other.end && other.begin < piece.end;
  }

  const ChunkPiece piece;
  Demand demand;
  bool here = false;  ///< guarded by the chunk's shard of the ChunkTable
};

using FetchPartPtr = std::shared_ptr<FetchPart>;

/// A caller that waits for a fetch.
struct FetchWaiter {
  AcquireDone done;
  ChunkPiece piece;     ///< that it wants
  bool joined = false;  ///< another caller started the fetch
};

struct Fetch {
  Fetch(ChunkId wanted, Priority priority) : chunk(wanted), demand(priority) {}

  const ChunkId chunk;
  Demand demand;

  // Guarded by the chunk's shard of the ChunkTable.
  std::vector<FetchWaiter> waiters;
  std::vector<FetchPartPtr> parts;  // empty: it comes whole
  size_t parts_under_way = 0;
  ChunkRef parts_data;  // where they go, until the fetch ends
  bool failed = false;  // one of them did, and the fetch has ended
  // For another node; never turns true later. Only the thread that carries the fetch on writes it, and reads
  // it without the lock.
  bool may_wait = false;
  Use use;  // that it is for: of the first caller that named one

  // Of the thread that carries the fetch on; one at a time. While parts are under way no thread writes it.
  ChunkRef data;
  Tier keep = Tier::none;       // where it is to stay
  Tier promised = Tier::none;   // where it has room that is promised, and not taken yet
  bool owed = false;            // RAM is to have it instead of NVMe: see RamBackup::added()
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
