// The cache: which chunks are here, in which tier, and how a missing one is brought in exactly once.
//
// A chunk is in memory (in the RAM tier, or in transit: on its way to NVMe or just read from it), on NVMe, or
// absent. Whoever needs one calls acquire() or read(). If it is in memory the answer comes at once. Otherwise
// the first caller starts a fetch and all others join it (single flight); the fetch takes the chunk from NVMe
// if it is there, else from the source, into memory that was reserved before, and completes every waiter from
// the thread that completed the transfer.
//
// Where a fetched chunk is kept is decided by a TierPolicy before it is fetched. What the RAM tier does not
// keep goes through transit memory: a small, fixed budget whose chunks stay until the memory is needed for
// the next (first in, first out), so that the READs of one chunk in sequence cost one transfer. When transit
// memory is short, fetches wait for it in order; it comes free as transfers complete. Some of it is left to
// what comes from NVMe, so that a source that hangs does not hold that up.
//
// Fetches that wait for other nodes have a share of the transit memory, and each way a queue of its own. What
// other nodes ask for (acquire_here) comes from here or from the PFS, and never joins a fetch that waits for
// a node: so nodes never wait for each other in a circle.
//
// A chunk larger than a READ that no tier would keep is not brought in whole: the range asked for is read
// from the source and forgotten. So a full cache adds nothing to what the source would have to deliver
// anyway.
//
// Locks: shard mutexes (one of 64, by chunk) and transit_mutex_. Order: none is held while taking another,
// and none while a call-back runs, a transfer is submitted, or a ChunkRef is dropped.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/catalog.h"
#include "cache/chunk_data.h"
#include "cache/nvme_store.h"
#include "cache/ram_arena.h"
#include "cache/source.h"
#include "cache/tier_policy.h"

namespace clairfs {

/// A chunk in memory, and how it came to the caller.
struct AcquiredChunk {
  ChunkRef data;
  Origin origin = Origin::ram;  ///< where this caller's bytes came from
  bool joined = false;          ///< another caller's fetch was already under way
  uint64_t start = 0;           ///< where in the chunk `data` begins; not 0 only for a range read through
};

/// The bytes of a read, pinned until it is destroyed.
struct ReadView {
  std::vector<iovec> memory;
  std::vector<ChunkRef> pins;
  std::vector<std::unique_ptr<std::string>> copies;  ///< of what must not stay pinned
  Origin origin = Origin::ram;                       ///< the slowest that any part came from
  bool joined = false;
};

/// Thread-safe.
class ChunkCache final : private MemoryListener {
 public:
  using AcquireDone = std::function<void(Result<AcquiredChunk>)>;
  using ReadDone = std::function<void(Result<ReadView>)>;

  /// What the cache is made of; all outlive it. `stores` may be empty.
  struct Parts {
    const Catalog& catalog;
    ChunkSource& source;
    std::vector<NvmeStore*> stores;
    TierPolicy& policy;
    Metrics& metrics;
    Logger& log;
    /// The catalog did not look at every file: compare a file with the source before the first use of what an
    /// NVMe store kept of it over a restart.
    bool verify_warm_files = false;
  };

  /// Memory used is at most `ram_capacity` plus transit_capacity(chunk size). Errors: ENOMEM, EINVAL.
  static Result<std::unique_ptr<ChunkCache>> create(const Parts& parts, uint64_t ram_capacity);
  /// Memory for chunks in transit: eight of the largest (so that transfers overlap), at least 16 MiB (the
  /// READs of a few dozen readers).
  static uint64_t transit_capacity(uint32_t chunk_size);

  /// Calls `done` exactly once with the whole chunk: before returning if it is in memory, else from the
  /// thread that completed the fetch. Errors: those of the source; ECANCELED after stop().
  void acquire(ChunkId chunk, Urgency urgency, const AcquireDone& done);

  /// The same on behalf of another node: from memory, from NVMe, or, if `or_from_pfs`, from the PFS, but
  /// never from a third node. False, and `done` is not called, if it could not come from there.
  bool acquire_here(ChunkId chunk, Urgency urgency, bool or_from_pfs, const AcquireDone& done);

  /// As acquire(), for bytes [offset, offset + length) of a file, with the urgency of a waiting reader.
  /// REQUIRES: length > 0 and the range lies within the file.
  void read(FileId file, uint64_t offset, uint64_t length, ReadDone done);

  /// The chunk if it is in memory; starts nothing.
  ChunkRef resident(ChunkId chunk) const;
  /// What the tiers could still take.
  TierSpace space() const;
  /// Whether the chunk would stay in a tier if it were fetched now; `space` is space().
  bool would_keep(ChunkId chunk, const TierSpace& space) const;
  /// NVMe is slower than what is brought in for it: more would be fetched in vain.
  bool writes_are_behind() const;
  /// Where the chunk is kept now.
  Tier tier_of(ChunkId chunk) const;

  /// Nothing new is fetched from now on; waits until what is under way has ended, at most `patience`. False
  /// if something was still under way then (a hung filesystem): the process must then end without destroying
  /// this.
  bool stop(Duration patience);

 private:
  struct Flight {
    std::vector<AcquireDone> waiters;  // the first one started it, the others joined
    ChunkSource::Ticket ticket = 0;    // 0 while the source does not know of it
    Urgency urgency;                   // of the most urgent of them
    bool peers = false;                // may wait for another node; never turns true later
  };
  /// Where a fetch goes: what it may have to wait for.
  enum class Way : uint8_t { nvme, source, peer };
  static constexpr size_t kWays = 3;
  /// What waits for memory: a chunk, if it is all of one, and how to go on.
  struct Parked {
    std::optional<ChunkId> chunk;
    std::function<std::optional<Way>()> attempt;  // the way that still has no memory; nothing: it has begun
  };
  struct Slot {
    ChunkRef data;      // in the RAM tier or in transit
    uint8_t store = 0;  // 1 + index of the NVMe store that has it; 0: none
  };
  struct alignas(64) Shard {
    Mutex mutex;
    std::unordered_map<ChunkId, Flight> flights GUARDED_BY(mutex);
  };
  struct Fetch;
  struct RangeRead;

  ChunkCache(const Parts& parts, std::unique_ptr<RamArena> ram_arena, std::unique_ptr<RamArena> transit_arena,
             uint64_t ram_capacity, uint64_t transit_bytes);
  void memory_released() override;

  Shard& shard(ChunkId chunk) const { return shards_[chunk.index() % shards_.size()]; }
  void adopt_warm_chunks();

  // One fetch, step by step.
  struct Scope {
    bool pfs = true;        // may come from the PFS
    bool peers = false;     // may come from another node
    bool for_peer = false;  // another node waits for it
  };
  bool join_or_start(ChunkId chunk, Urgency urgency, Scope scope, const AcquireDone& done);
  void begin_or_park(ChunkId chunk, Urgency urgency);
  std::optional<Way> begin(ChunkId chunk, Urgency urgency);
  Tier make_place(ChunkId chunk);
  bool must_verify(FileId file) const;
  void verify_then_fetch(const std::shared_ptr<Fetch>& fetch);
  void fetch_from_nvme(const std::shared_ptr<Fetch>& fetch);
  void fetch_without_nvme(const std::shared_ptr<Fetch>& fetch);
  void ask_source(const Fetch& fetch, FetchRequest request);
  void fetch_from_source(const std::shared_ptr<Fetch>& fetch);
  void finish(Fetch& fetch, const Result<Origin>& outcome);
  ChunkRef moved_to_ram(ChunkRef data);
  void publish(ChunkId chunk, const ChunkRef& data, Origin origin);
  void complete(ChunkId chunk, const Result<AcquiredChunk>& result);
  bool count_write(uint64_t bytes);
  void write_behind(ChunkId chunk, const ChunkRef& data);
  void operation_ended(ChunkRef data);
  void fetch_again(ChunkId chunk, Urgency urgency);
  void lose(const ChunkRef& data);

  // Memory.
  NvmeStore* roomiest_store(uint64_t bytes, size_t& index) const;
  std::optional<Block> reserve_transit(uint64_t length, Way way);
  std::optional<Block> claim_transit(uint64_t length, Way way);
  std::optional<Block> allocate_transit(uint64_t length, Way way);
  bool asks_peers(FileId file, uint64_t offset) const;
  void evict(ChunkId chunk, Tier tier);
  void park(Urgency urgency, Way way, Parked parked);
  void raise_parked(ChunkId chunk);
  std::optional<Urgency> urgency_of(ChunkId chunk) const;
  void retry_parked();
  bool retry_oldest();

  // Reads.
  void acquire_piece(FileId file, ChunkId chunk, uint64_t offset, uint64_t length, const AcquireDone& done);
  void read_through(FileId file, uint64_t offset, uint64_t length, bool peers, const AcquireDone& done);
  std::optional<Way> begin_reading_through(FileId file, uint64_t offset, uint64_t length, bool peers,
                                           const AcquireDone& done);

  // Constant after construction.
  const Catalog& catalog_;
  ChunkSource& source_;
  const std::vector<NvmeStore*> stores_;
  TierPolicy& policy_;
  Metrics& metrics_;
  Logger& log_;
  const std::unique_ptr<RamArena> ram_arena_;
  const std::unique_ptr<RamArena> transit_arena_;

  // Self-synchronised.
  MemoryAccount ram_;
  MemoryAccount transit_;
  std::atomic<uint64_t> write_behind_bytes_{0};
  std::atomic<uint64_t> nvme_promised_{0};  // bytes of fetches that are to be kept on NVMe
  std::atomic<uint64_t> peer_transit_{0};   // bytes of transit memory of fetches that may wait for peers
  std::atomic<uint64_t> lost_bytes_{0};     // of lost_
  std::atomic<uint64_t> outstanding_{0};    // transfers under way
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> parked_count_{0};
  std::atomic<uint64_t> retries_wanted_{0};

  mutable std::array<Shard, 64> shards_;
  std::vector<std::atomic<bool>> unverified_;  // by FileId; empty when every file was looked at
  std::vector<Slot> slots_;                    // by ChunkId; each is guarded by its shard's mutex

  Mutex transit_mutex_;
  std::deque<ChunkId> transit_order_ GUARDED_BY(transit_mutex_);  // oldest first
  // What waits for memory, by kind of urgency and by way.
  using Queue = std::deque<Parked>;
  std::array<std::array<Queue, kWays>, 3> parked_ GUARDED_BY(transit_mutex_);
  std::vector<ChunkRef> lost_ GUARDED_BY(transit_mutex_);  // memory that must never be used again
};

}  // namespace clairfs
