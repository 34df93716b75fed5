// Transit memory: a fixed budget for chunks that are on their way or that no tier keeps.
//
// Its chunks stay until the memory is needed for the next (first in, first out), so that the READs of one
// chunk in sequence cost one transfer. memory/transit_shares.h divides it among kinds of fetches.
//
// One thread ("transit") begins the fetches that found no memory. So freeing memory starts no fetch, and a
// ChunkRef may be dropped anywhere, under any lock. The thread sleeps while nothing waits or nothing comes
// free.
//
// Thread-safe. mutex_ is a leaf.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/chunks/chunk_table.h"
#include "cache/chunks/transit_queue.h"
#include "cache/memory/chunk_data.h"
#include "cache/memory/ram_arena.h"
#include "cache/memory/transit_shares.h"

namespace clairfs {

class TransitPool final : public MemoryListener {
 public:
  /// `table` outlives it. `has_nvme`: a share is kept for reads from NVMe.
  TransitPool(std::unique_ptr<RamArena> arena, const TransitShares& shares, bool has_nvme, ChunkTable& table,
              Metrics& metrics, Logger& log);
  /// As end().
  ~TransitPool();
  TransitPool(const TransitPool&) = delete;
  TransitPool& operator=(const TransitPool&) = delete;

  /// Memory within the share of the class, after dropping chunks that are not in use; nothing: there is none
  /// now.
  std::optional<Block> reserve(uint64_t length, TransitClass transit_class);
  /// Gives `bytes` of the share of a class back, before the memory itself: their transfer has ended.
  void leave(TransitClass transit_class, uint64_t bytes);
  /// A read from NVMe was given up. It keeps `bytes` until hung_read_ended().
  void read_hangs(uint64_t bytes) { hung_.fetch_add(bytes); }
  void hung_read_ended(uint64_t bytes) { hung_.fetch_sub(bytes); }
  /// The most bytes that staging may hold now.
  uint64_t staging_share() const { return shares_.staging_beside(hung_.load()); }
  /// The chunk is in the table now, and may be dropped when its turn comes.
  void add(ChunkId chunk);
  /// Quarantines memory that a network may still write to, of the RAM tier or of transit memory: it is not
  /// used again before end().
  void lose(const ChunkRef& data);
  /// Whether this node may ask others, by which it may lose memory. False once too much of it is lost.
  bool may_lose() const { return lost_bytes_.load() <= shares_.lost; }

  /// Has the thread begin a fetch for which reserve() had no memory, as soon as there is some.
  void wait(TransitClass transit_class, std::shared_ptr<const Demand> demand, TransitQueue::Attempt attempt);
  void demand_changed(const Demand& demand) { waiting_.demand_changed(demand); }
  bool nobody_waits() const { return waiting_.empty(); }
  void memory_released() override;
  /// Has the thread try every fetch that waits: each finds that the mount ends, or that a disk hangs.
  void wake();
  /// Ends the thread: fetches that still wait are never begun. Lets go of what lose() was given, as long as
  /// the RAM tier is there. REQUIRES: no network writes any more.
  void end();

 private:
  void begin_waiting();
  std::optional<Block> allocate(uint64_t length, TransitClass transit_class);
  std::optional<Block> claim(uint64_t length, TransitClass transit_class);

  const std::unique_ptr<RamArena> arena_;
  const TransitShares shares_;
  const bool has_nvme_;
  ChunkTable& table_;
  Logger& log_;
  MemoryAccount account_;
  std::atomic<uint64_t> others_{0};      // bytes of fetches that may wait for other nodes
  std::atomic<uint64_t> from_nvme_{0};   // bytes of reads from NVMe
  std::atomic<uint64_t> hung_{0};        // of these, bytes of those that were given up
  std::atomic<uint64_t> lost_bytes_{0};  // of lost_
  TransitQueue waiting_;
  CondVar wake_;
  Mutex mutex_;
  std::deque<ChunkId> order_ GUARDED_BY(mutex_);   // oldest first
  std::vector<ChunkRef> lost_ GUARDED_BY(mutex_);  // memory that must not be used again
  bool news_ GUARDED_BY(mutex_) = false;           // since the thread last tried
  bool ending_ GUARDED_BY(mutex_) = false;
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
