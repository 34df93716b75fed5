// The memory that chunks live in: one mapping, handed out in pages.
//
// A block is a list of page runs, so any free page can serve any request: memory is never lost to
// fragmentation, only to the padding of a block's last page. Runs are chosen best fit, so that most blocks
// are one run. Capacity is divided among accounts (the RAM tier; chunks in transit), each with a limit of its
// own; the mapping is as large as the accounts together, so a charge that an account grants always finds
// pages.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include <sys/uio.h>

#include "cache/base/fd.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"

namespace clairfs {

/// The unit of the arena and of O_DIRECT transfers, which need memory aligned to it.
constexpr uint64_t kPageSize = 4096;

constexpr uint64_t round_to_pages(uint64_t bytes) {
  return (bytes + kPageSize - 1) / kPageSize * kPageSize;
}

/// A limit on bytes. Thread-safe. Mirrors what is in use into a gauge.
class MemoryAccount {
 public:
  MemoryAccount(uint64_t capacity, Gauge& in_use_gauge) : capacity_(capacity), gauge_(in_use_gauge) {}
  /// Takes `bytes` if they fit.
  bool charge(uint64_t bytes);
  void refund(uint64_t bytes);
  uint64_t used() const { return used_.load(std::memory_order_relaxed); }
  uint64_t capacity() const { return capacity_; }

 private:
  const uint64_t capacity_;
  Gauge& gauge_;
  std::atomic<uint64_t> used_{0};
};

class RamArena;

/// Owns the pages of one chunk and their charge. Move-only; returns both when destroyed; empty after a move.
/// Filled by whoever allocated it, immutable once shared.
class Block {
 public:
  struct Run {
    uint32_t first = 0;  ///< page number
    uint32_t count = 0;  ///< pages
  };

  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;
  ~Block();

  /// The memory of bytes [offset, offset + length), in order. REQUIRES: within the pages of the block.
  std::vector<iovec> slices(uint64_t offset, uint64_t length) const;
  /// All pages, padding included: what O_DIRECT transfers use.
  std::vector<iovec> pages() const;
  uint64_t capacity() const { return pages_ * kPageSize; }
  const MemoryAccount& account() const { return *account_; }

 private:
  friend class RamArena;
  Block(RamArena* arena, MemoryAccount* account, Run first, std::vector<Run> more, uint32_t pages)
      : arena_(arena), account_(account), first_(first), more_(std::move(more)), pages_(pages) {}

  RamArena* arena_;
  MemoryAccount* account_;
  Run first_;  // nearly always the only one
  std::vector<Run> more_;
  uint32_t pages_;
};

/// Thread-safe. Outlives its blocks. A thread of its own ("arena") makes memory resident a little ahead of
/// its use: the first touch of a page can take long (zeroing, and on a virtual machine the host's own
/// allocation), and a fetch would wait for it page by page.
class RamArena {
 public:
  /// Memory for `capacity` bytes (rounded up to pages; at most 16 TiB, page numbers being 32 bits); nothing
  /// is resident until it is used. Errors: ENOMEM.
  static Result<std::unique_ptr<RamArena>> create(uint64_t capacity);
  ~RamArena();

  /// Pages for `length` >= 1 bytes charged to `account`, or nothing if the account is full. The accounts'
  /// capacities must not add up to more than the arena's.
  std::optional<Block> allocate(uint64_t length, MemoryAccount& account);

 private:
  friend class Block;
  explicit RamArena(Mapping memory);
  void populate_ahead();
  bool wants_population() const REQUIRES(mutex_);
  Block::Run take_run(uint32_t wanted) REQUIRES(mutex_);
  void insert_free(Block::Run run) REQUIRES(mutex_);
  void release(const Block& block);

  const Mapping memory_;

  Mutex mutex_;                                                    // leaf: nothing is called while it is held
  std::map<uint32_t, uint32_t> free_by_first_ GUARDED_BY(mutex_);  // first page -> pages
  std::set<std::pair<uint32_t, uint32_t>> free_by_count_ GUARDED_BY(mutex_);  // (pages, first page)
  uint32_t used_until_ GUARDED_BY(mutex_) = 0;  // highest page ever handed out, plus 1
  uint32_t populated_until_ GUARDED_BY(mutex_) = 0;
  bool stopping_ GUARDED_BY(mutex_) = false;
  CondVar used_more_;
  NamedThread populator_;  // last: uses the others
};

}  // namespace clairfs
