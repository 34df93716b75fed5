// Tiers keeps chunks: in the RAM tier, in the NVMe stores, and as copies of the one on the other.
//
// A TierPolicy decides before a chunk is fetched; this asks it, makes room, and tells it what became of that.
// Readers never wait for a chunk to go to NVMe. A chunk for which the disk has no time when it arrives
//   - goes to RAM in the place of chunks that NVMe has copies of (ram_backup.h), and is copied in its turn,
//   - else waits in transit memory, which it does not pin, and is written when the disk has caught up,
//   - else is not kept this time.
// NVMe takes whole chunks, and transit memory is too small to have some wait there for their rests. So one
// that may come in parts goes to RAM in that way from the beginning, if it can.
//
// Room that a chunk is to have counts as used from promise_room() on, until the chunk has it or will not
// have it. So no two chunks are sent to the same room. The room of a copy is free, and may be promised: then
// the copy goes when RAM drops its chunk.
//
// Writes begin where fetches complete, which must not wait. A store that has to grow for a write waits for
// its disk, so that is left to a thread of its own ("nvme-grow"), and the write begins afterwards.
//
// Thread-safe. placing_ comes before all other locks, and is held while the policy and the stores are asked
// for room, chunks are dropped and memory of the RAM tier is taken, but not while a transfer begins. mutex_
// is a leaf; it is not held while a store or the policy is called.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <sys/uio.h>

#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_table.h"
#include "cache/chunks/ram_backup.h"
#include "cache/chunks/tier_policy.h"
#include "cache/memory/ram_arena.h"
#include "cache/nvme/store.h"
#include "cache/tasks/in_turn.h"
#include "cache/tasks/task_thread.h"

namespace clairfs {

class Tiers final : private RamBackup::Keeper {
 public:
  /// All outlive it. `stores` may be empty.
  struct Deps {
    const Catalog& catalog;
    std::vector<NvmeStore*> stores;
    TierPolicy& policy;
    ChunkTable& table;
    MemoryListener& listener;  ///< of the RAM tier's memory
    Metrics& metrics;
    Logger& log;
  };

  /// `most_writes`: bytes that may wait pinned to be written to NVMe, and as many without a pin.
  Tiers(Deps deps, std::unique_ptr<RamArena> ram, uint64_t ram_capacity, uint64_t most_writes);

  /// Takes over the chunks that the stores kept over a restart, and drops those that are not in the catalog
  /// any more. True if any are left. To be called once, first.
  bool adopt_warm_chunks();

  /// Takes the chunk and its copies out of the tiers on a caller's request, and tells the policy.
  void drop(ChunkId chunk);

  /// Where a chunk that is about to be fetched for a use, from NVMe or not, is to stay; what has to make room
  /// is dropped. Its room there is promised to it until take_back().
  Tier promise_room(ChunkId chunk, bool from_nvme, const Use& use);
  /// Has a chunk to which room on NVMe is promised go to RAM, in the place of chunks that NVMe has copies of:
  /// those stay there. Room in RAM is promised to it then, instead, and kept_in_ram() is to be told that it
  /// is owed. False: it goes to NVMe.
  bool swap_place(ChunkId chunk);
  /// Memory of the RAM tier for a chunk to which room there is promised, and with it the promise ends.
  /// Nothing: readers still pin what was dropped, and the promise stands.
  std::optional<Block> allocate_ram(ChunkId chunk);
  bool in_ram(const ChunkRef& data) const { return &data->block.account() == &account_; }
  /// A copy in the RAM tier, with memory by allocate_ram(), or `data` itself if there is none.
  ChunkRef moved_to_ram(ChunkId chunk, ChunkRef data);
  /// The table says that RAM has the chunk. `store` had it until then. `owed`: see RamBackup::added().
  void kept_in_ram(ChunkId chunk, std::optional<size_t> store, bool owed);

  void read(size_t store, ChunkId chunk, const std::vector<iovec>& pages, std::function<void(Status)> done);
  size_t stores() const { return deps_.stores.size(); }
  /// Says so in the log: a store does not answer a read.
  void tell_of_hang(size_t store);
  /// A store turned out not to have the chunk.
  void lost_on_nvme(ChunkId chunk);
  /// Makes the store's copy of the chunk unusable.
  void forget(size_t store, ChunkId chunk);

  /// The chunk has the room in `tier` that was promised, or needs it no longer; `none`: nothing to do.
  void take_back(ChunkId chunk, Tier tier);
  /// Counts a write of `bytes` before it begins. False if NVMe has too much to write already.
  bool count_write(uint64_t bytes);
  /// Writes the chunk to NVMe, and takes back the room there that was promised to it. REQUIRES:
  /// count_write().
  void write(ChunkId chunk, const ChunkRef& data);
  /// For a chunk in transit memory that the table has and that was to go to NVMe, when count_write() said no.
  /// It keeps the room that was promised to it as long as it waits.
  void write_later(ChunkId chunk, const ChunkRef& data);
  bool writes_are_behind() const { return writing_.load() > most_writes_ / 2; }

  TierSpace space() const { return space(writes_are_behind()); }
  bool would_keep(ChunkId chunk, const TierSpace& space, const Use& use) const;
  RamBackup& backup() { return backup_; }

  /// No more writes to NVMe from now on.
  void stop();
  /// After stop(): nothing is under way.
  bool stopped() const { return writes_.load() == 0 && backup_.stopped(); }

 private:
  uint32_t length(ChunkId chunk) const { return deps_.catalog.range(chunk).length; }
  void promise(ChunkId chunk, Tier tier);
  uint64_t ram_room() const;
  uint64_t nvme_room() const;
  bool moves_up(ChunkId chunk) const;
  void evict(ChunkId chunk, Tier tier, uint64_t given_up = 0);
  bool has_room_for_copy(size_t store, uint64_t given_up) const;
  TierSpace space(bool behind) const;
  bool may_swap() const;
  bool make_room_by_copies(ChunkId chunk);
  bool swap_into_ram(ChunkId chunk, const ChunkRef& data);
  void begin_in_turn(ChunkId chunk, const ChunkRef& data, uint64_t checksum);
  void begin_write(ChunkId chunk, const ChunkRef& data, uint64_t checksum);
  void write_waiting();
  uint64_t adopt(size_t store);
  std::optional<size_t> roomiest_store(uint64_t bytes) const;
  ChunkRef only_in_ram(ChunkId chunk) const override { return deps_.table.only_in_ram(chunk); }
  void left_on_nvme(ChunkId chunk, size_t store) override;
  std::optional<size_t> promise_copy(uint64_t bytes) override;
  void take_back_copy(uint64_t bytes) override { promised_nvme_.fetch_sub(bytes); }
  void copy_written() override { swapped_.store(0); }

  const Deps deps_;
  const std::unique_ptr<RamArena> ram_;
  MemoryAccount account_;  // of the RAM tier
  const uint64_t most_writes_;
  Mutex placing_;  // one decision at a time: each counts what the ones before it promised
  std::atomic<uint64_t> promised_ram_{0};   // bytes
  std::atomic<uint64_t> promised_nvme_{0};  // bytes
  std::atomic<uint64_t> writing_{0};        // bytes
  std::atomic<uint64_t> writes_{0};         // under way
  std::atomic<uint64_t> swapped_{0};        // bytes of RAM, since a write last ended
  std::atomic<uint64_t> late_{0};           // bytes of waiting_
  std::atomic<bool> stopping_{false};
  Mutex mutex_;
  std::deque<ChunkId> waiting_ GUARDED_BY(mutex_);  // to be written, if they are still in transit memory
  bool beginning_ GUARDED_BY(mutex_) = false;       // some thread begins writes of them
  InTurn turns_;                                    // of writes to find room and to begin
  RamBackup backup_;                                // its thread uses the others
  std::optional<TaskThread> grower_;                // last, likewise; none without stores
};

}  // namespace clairfs
