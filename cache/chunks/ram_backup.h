// Copies on NVMe of the chunks that the RAM tier holds, so that a restart need not read them from the PFS.
//
// A copy is useful after a restart only, so it costs nothing before: it is made where NVMe has room, and the
// first to go when a chunk that is nowhere else needs that room. Policies and placements do not know of
// copies. To them the tiers stay exclusive, and room that copies take is free (room()).
//
//   RAM tier has a new chunk      added():   waits for its copy
//   a chunk moved up from NVMe    adopt():   what NVMe has becomes the copy
//   the RAM tier drops a chunk    release(): the copy becomes an ordinary chunk of the NVMe tier, without a
//                                 write, or goes, if its room is promised to another one
//   a chunk is to go to NVMe      make_room(): copies are dropped, and wait again
//
// One thread ("ram-backup") makes one copy after the other from its own buffer: no reader, fetch or other
// write waits for it or for memory that it has. While the stores are used otherwise, copying takes a small
// share of the time (BackupPace), but for chunks that went to RAM instead of NVMe (Tiers).
// The thread sleeps when nothing waits, or when NVMe is full.
//
// Locks: mutex_, a leaf; not held while the keeper or a store is called.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/fd.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/catalog/catalog.h"
#include "cache/memory/chunk_data.h"
#include "cache/nvme/store.h"

namespace clairfs {

/// When the next copy may begin. Not thread-safe; the times are the caller's.
class BackupPace {
 public:
  /// How long to wait before the next copy; zero: it may begin. `begun` and `under_way` count the other
  /// transfers of the stores: all so far, and those of now. A copy that is owed does not wait for them.
  Duration wait(TimePoint now, uint64_t begun, uint64_t under_way, bool owed = false);
  /// A copy took that long.
  void copied(TimePoint began, TimePoint ended);

 private:
  uint64_t seen_ = 0;
  TimePoint quiet_from_;      // the stores count as idle from then on
  TimePoint next_when_busy_;  // and if they are not: the earliest time for a copy
};

/// Thread-safe. Without stores it does nothing.
class RamBackup {
 public:
  /// The holder of the chunks. Called without any lock held.
  class Keeper {
   public:
    /// The chunk if the RAM tier has it and NVMe has not, as far as the keeper knows.
    virtual ChunkRef only_in_ram(ChunkId chunk) const = 0;
    /// Store number `store` has a chunk that the RAM tier dropped while it was copied.
    virtual void left_on_nvme(ChunkId chunk, size_t store) = 0;
    /// Promises `bytes` on NVMe to a copy, until take_back_copy(), in a store with room for them and for all
    /// that is promised already: that store.
    virtual std::optional<size_t> promise_copy(uint64_t bytes) = 0;
    virtual void take_back_copy(uint64_t bytes) = 0;
    /// A store has written a copy.
    virtual void copy_written() = 0;

   protected:
    ~Keeper() = default;
  };

  /// `promised`: bytes on NVMe that fetches under way, chunks that wait for the disk, and the copy that is
  /// about to be written will need. All parts outlive it. Without memory for its buffer no copies are made.
  RamBackup(const Catalog& catalog, const std::vector<NvmeStore*>& stores, Keeper& keeper,
            const std::atomic<uint64_t>& promised, Metrics& metrics);
  /// Ends the thread and waits for a copy under way.
  ~RamBackup();
  RamBackup(const RamBackup&) = delete;
  RamBackup& operator=(const RamBackup&) = delete;

  /// The RAM tier has the chunk, and NVMe has not. `owed`: NVMe was to have it, and would be written now; so
  /// a copy, of this or of one that waits longer, is made without a pause.
  void added(ChunkId chunk, bool owed = false);
  /// Copies that are to be made without a pause.
  uint64_t copies_owed() const;
  /// The RAM tier has the chunk that a store already had.
  void adopt(ChunkId chunk, size_t store);
  /// The store that has a copy of the chunk; it does not count as one any more.
  std::optional<size_t> release(ChunkId chunk);

  /// The chunks that have had their copies longest and take `bytes` of the RAM tier or more, for the caller
  /// to drop them from there; none if all that have copies take less. REQUIRES: bytes > 0.
  std::vector<ChunkId> oldest_copied(uint64_t bytes);
  bool any_copies() const;

  /// Bytes that a store could take if it dropped its copies; 0 if it takes no writes.
  uint64_t room(size_t store) const;
  /// Bytes of the copies in a store.
  uint64_t copied(size_t store) const { return copied_[store].load(); }
  /// The first store that has `bytes` available.
  std::optional<size_t> store_with(uint64_t bytes) const;
  /// Drops copies until some store has `bytes` available; none if that would not do.
  void make_room(uint64_t bytes);

  /// Transfers of the stores that are no copies.
  void transfer_began() {
    begun_.fetch_add(1, std::memory_order_relaxed);
    under_way_.fetch_add(1, std::memory_order_relaxed);
  }
  void transfer_ended() { under_way_.fetch_sub(1, std::memory_order_relaxed); }

  enum class Outcome {
    copied,   ///< or its write has begun, which may still fail
    skipped,  ///< the chunk needs no copy any more
    busy,     ///< the room may be needed by fetches under way
    full,     ///< no store has room for it; it waits on
    nothing,  ///< nothing waits, or a copy is under way
  };
  /// Begins the copy that has waited longest. Never waits for the write, but a store may have to grow first.
  Outcome copy_next();

  /// Starts the thread. REQUIRES: not started before.
  void start();
  /// Copies what still waits, without pauses. False if that took longer than `patience`, which ends the wait
  /// but not the copying. REQUIRES: started.
  bool flush(Duration patience);
  /// No copies from now on; returns at once.
  void stop();
  /// After stop(): the thread has ended and no copy is under way.
  bool stopped() const;

 private:
  struct State {
    uint8_t store = 0;         // 1 + number of the store that has a copy; 0: none
    bool waiting : 1 = false;  // in queue_
    bool writing : 1 = false;  // its copy is being made
    bool left : 1 = false;     // the RAM tier dropped it meanwhile
    bool listed : 1 = false;   // in copies_
  };
  struct Copy {
    ChunkId chunk;
    size_t store = 0;
  };

  uint64_t bytes_of(ChunkId chunk) const;
  std::optional<Copy> take_copy();
  void count(size_t store, ChunkId chunk, int64_t sign);
  void list_copy(ChunkId chunk, size_t store) REQUIRES(mutex_);
  std::optional<ChunkId> unlist_oldest() REQUIRES(mutex_);
  uint64_t fill_buffer(const ChunkRef& data);
  void write(ChunkId chunk, uint64_t checksum, size_t store);
  void written(ChunkId chunk, size_t store, bool success);
  void run();
  bool await_turn(BackupPace& pace, bool full);

  // Constant after construction.
  const Catalog& catalog_;
  const std::vector<NvmeStore*> stores_;
  Keeper& keeper_;
  const std::atomic<uint64_t>& promised_;
  Metrics& metrics_;
  Mapping buffer_;  // of the copy under way

  // Self-synchronised.
  const SteadyClock clock_;
  std::vector<std::atomic<uint64_t>> copied_;  // bytes of copies, by store
  std::atomic<uint64_t> begun_{0};
  std::atomic<uint64_t> under_way_{0};
  CondVar wake_;

  // Guarded.
  mutable Mutex mutex_;
  std::vector<State> states_ GUARDED_BY(mutex_);   // by ChunkId; empty if no copies are made
  std::deque<ChunkId> queue_ GUARDED_BY(mutex_);   // wait for their copies; each at most once
  std::deque<ChunkId> copies_ GUARDED_BY(mutex_);  // and some that have no copy any more; each at most once
  bool news_ GUARDED_BY(mutex_) = false;           // something to do, since the thread last looked
  bool in_flight_ GUARDED_BY(mutex_) = false;
  uint64_t to_flush_ GUARDED_BY(mutex_) = 0;  // copies that flush() still waits for
  uint64_t owed_ GUARDED_BY(mutex_) = 0;      // copies to be made without pauses
  bool stopping_ GUARDED_BY(mutex_) = false;
  bool running_ GUARDED_BY(mutex_) = false;

  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
