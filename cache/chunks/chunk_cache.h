// The cache: which chunks are here, in which tier, and how a missing one is brought in exactly once.
//
// A chunk is in memory (in the RAM tier, or in transit: on its way to NVMe or just read from it), on NVMe, or
// absent. Callers get one by acquire() or read(). If it is in memory the answer comes at once. Otherwise the
// first caller starts a fetch and all others join it (single flight); the fetch takes the chunk from NVMe if
// it is there, else from the source, into memory that was reserved before, and completes every waiter from
// the thread that completed the transfer.
//
// A TierPolicy decides where a chunk is kept before it is fetched. Chunks that the RAM tier does not keep go
// through transit memory. When that is short, fetches wait for it in order; it comes free as transfers
// complete.
//
// A chunk that no tier would keep is not brought in whole for a small part of it: the range asked for is read
// from the source and forgotten. So a full cache adds nothing to what the source would have to deliver
// anyway. Of a chunk that is brought in a plan's part may come first (fetch.h). How small a part has to be
// depends on the caller: a READ may be one of many in sequence, while a plan knows what it needs
// (acquire_range()).
//
// The parts: chunk_table (what is here and what is on its way), fetcher (carries a fetch on), tiers (what is
// kept), transit_pool and transit_queue (memory on the way). Locks are theirs: leaves, and one of tiers that
// comes before them all. None is held while a call-back runs or a transfer is submitted.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_table.h"
#include "cache/chunks/fetch.h"
#include "cache/chunks/fetcher.h"
#include "cache/chunks/tiers.h"
#include "cache/chunks/transit_pool.h"
#include "cache/memory/ram_arena.h"
#include "cache/memory/transit_shares.h"
#include "cache/nvme/store.h"
#include "cache/source/source.h"

namespace clairfs {

/// The bytes of a read, pinned until it is destroyed.
struct ReadView {
  std::vector<iovec> memory;
  std::vector<ChunkRef> pins;
  std::vector<std::unique_ptr<std::string>> copies;  ///< of what must not stay pinned
  Origin origin = Origin::ram;                       ///< the slowest that any part came from
  bool joined = false;
};

/// Thread-safe.
class ChunkCache {
 public:
  using ReadDone = std::function<void(Result<ReadView>)>;

  /// All outlive the cache. `stores` may be empty.
  struct Deps {
    const Catalog& catalog;
    ChunkSource& source;
    std::vector<NvmeStore*> stores;
    TierPolicy& policy;
    Metrics& metrics;
    Logger& log;
    /// The catalog did not look at every file: compare a file with the source before the first use of what an
    /// NVMe store kept of it over a restart.
    bool verify_warm_files = false;
    /// A read that an NVMe store takes longer for is made from the source.
    Duration nvme_patience = kNvmePatience;
    /// Chunks that come in parts at a time, about. The source does without their rests for as long as it is
    /// busy, and each takes 1 KiB to know until then: 64 MiB in all.
    size_t most_in_parts = 1 << 16;
  };

  /// Memory used is at most `ram_capacity` plus that of TransitShares::for_chunks(), and with stores one
  /// chunk more (ram_backup()). Errors: ENOMEM, EINVAL.
  static Result<std::unique_ptr<ChunkCache>> create(const Deps& deps, uint64_t ram_capacity);
  ~ChunkCache();
  ChunkCache(const ChunkCache&) = delete;
  ChunkCache& operator=(const ChunkCache&) = delete;

  /// Calls `done` exactly once with the whole chunk: before returning if it is in memory, else from the
  /// thread that completed the fetch. `use`: see TierPolicy. Errors: those of the source; ECANCELED after
  /// stop(), also before returning.
  void acquire(ChunkId chunk, Priority priority, const AcquireDone& done, const Use& use = {});

  /// As acquire(), for callers that need only bytes [offset, offset + length) of a file and no others of that
  /// chunk soon. If the chunk is neither here nor on its way and no tier would keep it, the range alone is
  /// read and forgotten, unless it is nearly all of the chunk. AcquiredChunk::start says where in the chunk
  /// `data` begins. If a tier is to keep the chunk, the range may come before the rest of it, and
  /// `done` is called as soon as the range is there: no other bytes may be looked at then. No other caller
  /// joins a range that is read alone. REQUIRES: length > 0 and the range lies within one chunk of the file.
  void acquire_range(FileId file, uint64_t offset, uint64_t length, Priority priority,
                     const AcquireDone& done, const Use& use = {});

  /// More calls of acquire() and acquire_range() follow at once, up to gathered(): see ChunkSource.
  void gather() { fetcher_.gather(); }
  void gathered() { fetcher_.gathered(); }

  /// Bytes that acquire_range() would bring into memory, or pin there: the range's or its chunk's.
  uint64_t bytes_acquired(FileId file, uint64_t offset, uint64_t length, const Use& use = {}) const;

  /// The most bytes of chunks that a caller may hold, or have asked for, if it uses them in order and waits
  /// for the first. An NVMe disk that hangs keeps memory, so meanwhile it is less. A caller that holds more
  /// than that may wait for the disk.
  uint64_t staging_share() const { return transit_.staging_share(); }

  /// acquire() on behalf of another node, from memory or within `scope`, and never by a fetch that waits for
  /// a third node. Returns the fetch, for raise(), which may have ended already; null if the chunk was in
  /// memory. Nothing, and `done` is not called, if the chunk could not come from there. `piece`: what is
  /// wanted of the chunk, and no other bytes may be looked at. REQUIRES: scope is not `anywhere`.
  std::optional<FetchPtr> acquire_within(FetchScope scope, ChunkId chunk, Priority priority,
                                         const AcquireDone& done, const ChunkPiece& piece = {});

  /// Raises the priority of what a fetch brings of `piece`, unless it is as urgent as that already. Does
  /// nothing to a fetch that has ended. REQUIRES: not null.
  void raise(const FetchPtr& fetch, Priority priority, const ChunkPiece& piece = {});

  /// Which READs are likely to follow this one.
  enum class Neighbours {
    likely,  ///< a chunk that is not much larger than a READ is brought in whole
    none,    ///< the rest is where the reader wants it: each chunk as by acquire_range()
  };
  /// As acquire(), for bytes [offset, offset + length) of a file, with the priority of a waiting reader.
  /// REQUIRES: length > 0 and the range lies within the file.
  void read(FileId file, uint64_t offset, uint64_t length, ReadDone done, const Use& use = {},
            Neighbours neighbours = Neighbours::likely);

  /// The chunk if it is in memory; starts nothing.
  ChunkRef resident(ChunkId chunk) const { return table_.resident(chunk); }
  /// Whether the bytes are in memory, be it of a chunk of which others are still on their way. REQUIRES: they
  /// lie within one chunk.
  bool in_memory(FileId file, uint64_t offset, uint64_t length) const {
    return table_.in_memory(catalog_.chunk_at(file, offset), piece_of(file, offset, length));
  }
  /// Whether the chunk comes without the source: it is in memory, or on NVMe and its file need not be
  /// compared.
  bool here(ChunkId chunk) const {
    return resident(chunk) ||
           (tier_of(chunk) == Tier::nvme && !fetcher_.must_verify(catalog_.range(chunk).file));
  }
  /// The room that is left in the tiers.
  TierSpace space() const { return tiers_.space(); }
  /// Whether the chunk would stay in a tier if it were fetched now, for no use yet; `space` is space().
  bool would_keep(ChunkId chunk, const TierSpace& space) const { return tiers_.would_keep(chunk, space, {}); }
  /// Whether NVMe writes more slowly than chunks for it arrive: more would be fetched in vain.
  bool writes_are_behind() const { return tiers_.writes_are_behind(); }
  /// Where the chunk is kept now.
  Tier tier_of(ChunkId chunk) const { return table_.tier_of(chunk); }

  /// Drops the chunk from the tiers that have it. Readers that have its memory keep it; a fetch that is under
  /// way is not stopped.
  void evict(ChunkId chunk) { tiers_.drop(chunk); }

  /// Makes copies of the RAM tier on NVMe once it is started; stop() ends it, too.
  RamBackup& ram_backup() { return tiers_.backup(); }

  /// Nothing new is fetched from now on; waits until what is under way has ended, at most `patience`. False
  /// if something was still under way then (a hung filesystem): the process must then end without destroying
  /// this.
  bool stop(Duration patience);

 private:
  struct RangeRead;

  ChunkCache(const Deps& deps, std::unique_ptr<RamArena> ram_arena, std::unique_ptr<RamArena> transit_arena,
             uint64_t ram_capacity, const TransitShares& shares);
  std::optional<FetchPtr> join_or_start(FetchScope scope, ChunkId chunk, const ChunkPiece& piece,
                                        Priority priority, const AcquireDone& done, const Use& use);
  ChunkPiece piece_of(FileId file, uint64_t offset, uint64_t length) const {
    const uint64_t begin = offset % catalog_.chunk_size(file);
    return {begin, begin + length};
  }
  void acquire_part_of(FileId file, uint64_t offset, uint64_t length, Priority priority,
                       const AcquireDone& done, const Use& use);
  void acquire_piece(FileId file, uint64_t offset, uint64_t length, const AcquireDone& done, const Use& use,
                     Neighbours neighbours);
  void acquire_or_pass(FileId file, uint64_t offset, uint64_t length, Priority priority,
                       const AcquireDone& done, const Use& use);
  bool passes(ChunkId chunk, const Use& use) const {
    return !table_.here_or_coming(chunk) && !tiers_.would_keep(chunk, space(), use);
  }

  const Catalog& catalog_;
  ChunkTable table_;  // first: the others' threads use it to the end
  TransitPool transit_;
  Tiers tiers_;
  Fetcher fetcher_;
};

}  // namespace clairfs
