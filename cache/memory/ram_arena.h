// The memory that chunks live in: one mapping, handed out in units of a fixed size.
//
// A block is a list of runs of units, so any free unit can serve any request: memory is never lost to
// fragmentation, only to the padding of a block's last unit. Runs are chosen best fit: a block is one run
// until the arena is full, and on average 10 to 20 of them once chunks of various sizes have replaced each
// other. An account may limit what is handed out; the mapping is as large as its accounts together, so a
// charge that an account grants always finds units.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <sys/uio.h>

#include "cache/base/fd.h"
#include "cache/base/free_runs.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"

namespace clairfs {

/// The unit of the page cache and of O_DIRECT transfers, which need memory aligned to it.
constexpr uint64_t kPageSize = 4096;

constexpr uint64_t round_to_pages(uint64_t bytes) {
  return (bytes + kPageSize - 1) / kPageSize * kPageSize;
}

/// The unit of the RAM tier, whose memory only the processor and system calls without O_DIRECT touch. Padding
/// takes half of it a chunk: of files of 110 KB 0.23 % (with pages 1.9 %), of files of 3 KB 8.5 % (68 %). In
/// a model of chunks of 110 KB that replace each other a block has 5.3 runs; with 1 KiB 4.7. Run numbers have
/// 32 bits, so it limits the tier to 2 TiB, as much memory as large nodes have.
constexpr uint64_t kRamUnit = 512;

constexpr uint64_t round_to_ram_units(uint64_t bytes) {
  return (bytes + kRamUnit - 1) / kRamUnit * kRamUnit;
}

/// A limit on bytes. Thread-safe. Mirrors what is in use into a gauge.
class MemoryAccount {
 public:
  MemoryAccount(uint64_t capacity, Gauge& in_use_gauge) : capacity_(capacity), gauge_(in_use_gauge) {}
  /// Takes `bytes` if `reserve` bytes more would fit, too. REQUIRES: reserve <= capacity().
  bool charge(uint64_t bytes, uint64_t reserve = 0);
  void refund(uint64_t bytes);
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t capacity() const { return capacity_; }

 private:
  const uint64_t capacity_;
  Gauge& gauge_;
  std::atomic<uint64_t> used_{0};
};

class RamArena;

/// Owns the memory of one chunk and their charge. Move-only; returns both when destroyed; empty after a move.
/// Its allocator fills it; immutable once shared.
class Block {
 public:
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  /// The memory of bytes [offset, offset + length), in order. REQUIRES: within capacity().
  std::vector<iovec> slices(uint64_t offset, uint64_t length) const;
  /// All of it, padding included: what O_DIRECT transfers use, if the arena's unit is a page.
  std::vector<iovec> all() const { return slices(0, capacity()); }
  uint64_t capacity() const;
  const MemoryAccount& account() const { return *account_; }

 private:
  friend class RamArena;
  Block(RamArena* arena, MemoryAccount* account, UnitRun first, std::vector<UnitRun> more, uint32_t units)
      : arena_(arena), account_(account), first_(first), more_(std::move(more)), units_(units) {}

  RamArena* arena_;
  MemoryAccount* account_;
  UnitRun first_;
  std::vector<UnitRun> more_;
  uint32_t units_;
};

/// Thread-safe. Outlives its blocks. Its thread ("arena") makes memory resident ahead of its use, as much as
/// is in use, but little: the first touch of a page can take long (zeroing, and on a virtual machine the
/// host's own allocation), and a fetch would wait for it page by page.
class RamArena {
 public:
  /// Memory for `capacity` bytes (rounded up to pages) in units of `unit` bytes, which divides a page or is
  /// one; nothing is resident until it is used. Errors: ENOMEM; EINVAL beyond 2^32 units.
  static Result<std::unique_ptr<RamArena>> create(uint64_t capacity, uint64_t unit = kPageSize);
  ~RamArena();

  /// Units for `length` >= 1 bytes charged to `account`, or nothing if less than `reserve` bytes of it would
  /// be left. The accounts' capacities must not add up to more than the arena's.
  std::optional<Block> allocate(uint64_t length, MemoryAccount& account, uint64_t reserve = 0);

 private:
  friend class Block;
  RamArena(Mapping memory, uint64_t unit);
  void populate_ahead();
  bool wants_population() const REQUIRES(mutex_);
  void release(const Block& block);

  const Mapping memory_;
  const uint64_t unit_;  // bytes

  Mutex mutex_;  // leaf: nothing is called while it is held
  FreeRuns free_ GUARDED_BY(mutex_);
  uint64_t used_until_ GUARDED_BY(mutex_) = 0;  // bytes; end of the highest unit ever handed out
  uint64_t populated_until_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  CondVar used_more_;
  NamedThread populator_;  // last: uses the others
};

}  // namespace clairfs
