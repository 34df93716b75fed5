// ChunkTable knows which chunk is where, and which one is on its way.
//
// A slot for each chunk says whether it is in memory and which NVMe store has it. A fetch is in the table
// from the join() that starts it until publish(), abandon() or the first of its parts that fails: callers
// that want its chunk meanwhile join it, so that a chunk is fetched once, however many want it.
//
// Thread-safe. Locks: shard mutexes (one of 64, by chunk), leaves. No call-back runs under one.
#pragma once

#include <array>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/chunks/fetch.h"
#include "cache/source/source.h"

namespace clairfs {

class ChunkTable {
 public:
  explicit ChunkTable(uint32_t chunks) : slots_(chunks) {}

  /// Demands that were raised: the caller tells Fetcher::demand_changed() of each.
  using Raised = std::vector<std::shared_ptr<const Demand>>;
  /// The result of join(): the data, or the fetch that will answer, or neither (refused).
  struct Joined {
    ChunkRef data;
    FetchPtr fetch;
    bool starts = false;  ///< the fetch is new, and the caller starts it
    Raised raised;
  };
  /// Adds `done` to the waiters of the chunk, unless `piece` of it is in memory. `may_wait`: a fetch that
  /// starts now may wait for another node. Refused if the chunk would have to come from outside `scope`.
  Joined join(FetchScope scope, ChunkId chunk, const ChunkPiece& piece, bool may_wait, Priority priority,
              const Use& use, const AcquireDone& done);
  /// Makes what a fetch brings of `piece` as urgent as that.
  Raised raise(const FetchPtr& fetch, const ChunkPiece& piece, Priority priority);

  /// Has a chunk of `length` bytes come in parts into the memory of the fetch: what its waiters want, then
  /// the rest, which may wait. Nothing: it is to come whole, since a reader waits for it, or nobody needs it
  /// soon, or they want nearly all or so little that the rest might as well come with it.
  std::vector<FetchPartPtr> split(Fetch& fetch, uint64_t length);
  /// Whether split() would do so now. The fetch needs no memory yet.
  bool splits(const Fetch& fetch, uint64_t length) const;

  struct PartEnded {
    std::vector<FetchWaiter> waiters;  ///< who are answered now
    bool last = false;                 ///< no part of the fetch is under way any more
    bool failed = false;               ///< some part failed, and the fetch has ended
  };
  /// A part has come, or has failed. With the last that comes nobody is answered: publish() is to follow.
  /// With the first that fails the fetch ends for all.
  PartEnded part_ended(Fetch& fetch, FetchPart& part, bool here);

  struct Settled {
    std::optional<size_t> store;  ///< that the fetch takes its chunk from
    Use use;                      ///< that it is for, as far as a caller has named it
  };
  /// Where the fetch goes from here. A fetch from NVMe waits for no other node.
  Settled settle(Fetch& fetch);
  /// From now on the fetch waits for no other node.
  void keep_from_others(Fetch& fetch);

  struct Published {
    std::vector<FetchWaiter> waiters;
    std::optional<size_t> store;  ///< that had the chunk until it came to RAM
  };
  /// Ends the fetch: all of the chunk is in memory, in the RAM tier or in transit.
  Published publish(const Fetch& fetch, const ChunkRef& data, bool in_ram);
  /// Ends the fetch without its chunk; returns its waiters.
  std::vector<FetchWaiter> abandon(const Fetch& fetch);

  /// The chunk if it is in memory.
  ChunkRef resident(ChunkId chunk) const;
  /// Whether join() would give `piece` of the chunk at once.
  bool in_memory(ChunkId chunk, const ChunkPiece& piece) const;
  /// The chunk if the RAM tier has it and NVMe has not.
  ChunkRef only_in_ram(ChunkId chunk) const;
  /// The chunk if it is in transit memory and NVMe has it not.
  ChunkRef only_in_transit(ChunkId chunk) const;
  Tier tier_of(ChunkId chunk) const;
  /// In memory, on NVMe or on its way.
  bool here_or_coming(ChunkId chunk) const;
  bool on_nvme(ChunkId chunk) const;

  /// The store has the chunk, unless another one does: that one.
  std::optional<size_t> set_store(ChunkId chunk, size_t store);
  /// The store that had it until now.
  std::optional<size_t> clear_store(ChunkId chunk);
  /// Takes the chunk out of the RAM tier; null if it is not there.
  ChunkRef take_from_ram(ChunkId chunk);
  /// The RAM tier has the chunk, which was in transit memory until now; false if that had it no more.
  bool move_to_ram(ChunkId chunk, ChunkRef data);
  /// Takes the chunk out of transit memory unless it is pinned elsewhere; `pinned` says whether it is.
  ChunkRef take_from_transit(ChunkId chunk, bool& pinned);
  /// Lets go of all data, before the memory that it is in goes.
  void clear();

 private:
  struct Slot {
    ChunkRef data;
    uint8_t store =
        0;  // 1 + number of the NVMe store that has it; 0: none, or a copy that RamBackup knows of
    bool in_ram = false;  // what `data` is in: the RAM tier, or transit memory
  };
  struct alignas(64) Shard {
    Mutex mutex;
    std::unordered_map<ChunkId, FetchPtr> fetches GUARDED_BY(mutex);
  };

  static Raised raise_piece(const FetchPtr& fetch, const ChunkPiece& piece, Priority priority);
  static bool has(const Fetch& fetch, const ChunkPiece& piece);
  static std::vector<FetchWaiter> take_out(Shard& home, ChunkId chunk) REQUIRES(home.mutex);
  static std::optional<size_t> number(uint8_t store) {
    return store == 0 ? std::nullopt : std::optional<size_t>(store - 1);
  }
  Shard& shard(ChunkId chunk) const { return shards_[chunk.index() % shards_.size()]; }

  mutable std::array<Shard, 64> shards_;
  std::vector<Slot> slots_;  // by ChunkId; each is guarded by its shard's mutex
};

}  // namespace clairfs
