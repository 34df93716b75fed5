#include "cache/memory/ram_arena.h"

#include <algorithm>
#include <cerrno>

#include <sys/mman.h>

#include "cache/base/units.h"

namespace clairfs {
namespace {

// A huge page of most processors.
constexpr uint64_t kPopulateStep = 2U << 20;

// Enough for some ten milliseconds of fetching at 1 GB/s, little enough not to count.
constexpr uint64_t kPopulateAheadMost = 16U << 20;

// As much as has been used: when a plan begins, memory that nobody needs yet takes no processor from the
// first fetches. Four nodes on two cores, whose host had taken free memory back, spent 0.2 s of both on it.
uint64_t populate_ahead_of(uint64_t used) {
  return std::min(used, kPopulateAheadMost);
}

}  // namespace

bool MemoryAccount::charge(uint64_t bytes, uint64_t reserve) {
  const uint64_t limit = capacity_ - reserve;
  uint64_t used = used_.load(std::memory_order_relaxed);
  do {
    if (bytes > limit || used > limit - bytes) return false;
  } while (!used_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  gauge_.add(static_cast<int64_t>(bytes));
  return true;
}

void MemoryAccount::refund(uint64_t bytes) {
  used_.fetch_sub(bytes, std::memory_order_relaxed);
  gauge_.add(-static_cast<int64_t>(bytes));
}

Block::Block(Block&& other) noexcept
    : arena_(std::exchange(other.arena_, nullptr)),
      account_(other.account_),
      first_(other.first_),
      more_(std::move(other.more_)),
      units_(other.units_) {}

Block& Block::operator=(Block&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(account_, other.account_);
  std::swap(first_, other.first_);
  std::swap(more_, other.more_);
  std::swap(units_, other.units_);
  return *this;
}

Block::~Block() {
  if (arena_ != nullptr) arena_->release(*this);
}

std::vector<iovec> Block::slices(uint64_t offset, uint64_t length) const {
  std::vector<iovec> out;
  const auto add = [&](UnitRun run) {
    const uint64_t bytes = run.count * arena_->unit_;
    if (offset >= bytes) {
      offset -= bytes;
      return;
    }
    const uint64_t part = std::min(length, bytes - offset);
    if (part > 0) out.push_back({arena_->memory_.data() + run.first * arena_->unit_ + offset, part});
    length -= part;
    offset = 0;
  };
  add(first_);
  for (const UnitRun run : more_) {
    if (length == 0) break;
    add(run);
  }
  return out;
}

uint64_t Block::capacity() const {
  return units_ * arena_->unit_;
}

Result<std::unique_ptr<RamArena>> RamArena::create(uint64_t capacity, uint64_t unit) {
  const uint64_t most = unit << 32;
  if (capacity >= most) {
    return Error{EINVAL, "the RAM tier of " + format_size(capacity) + " must be smaller than " +
                             format_size(most) + "; lower --ram"};
  }
  auto memory = Mapping::anonymous(round_to_pages(capacity));
  if (!memory)
    return Error{memory.error().code, memory.error().message + "; lower --ram, or raise ulimit -v"};
  return std::unique_ptr<RamArena>(new RamArena(std::move(*memory), unit));
}

RamArena::RamArena(Mapping memory, uint64_t unit) : memory_(std::move(memory)), unit_(unit) {
  // Fewer TLB misses when chunks are copied; memory is handed out densely, so little more becomes resident.
  if (memory_.size() > 0) ::madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);
  MutexLock lock(mutex_);
  if (memory_.size() == 0) return;
  free_.release({0, static_cast<uint32_t>(memory_.size() / unit_)});
  populator_ = NamedThread("arena", [this] { populate_ahead(); });
}

RamArena::~RamArena() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  used_more_.notify_one();
}

void RamArena::populate_ahead() {
  for (;;) {
    uint64_t begin = 0;
    uint64_t end = 0;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !wants_population()) used_more_.wait(lock);
      if (stopping_) return;
      begin = std::max(populated_until_, round_to_pages(used_until_));
      end = std::min(begin + kPopulateStep, memory_.size());
      populated_until_ = end;
    }
    if (begin == end) return;
    // Linux 5.14; where it is missing, pages become resident at their first use.
    if (::madvise(memory_.data() + begin, end - begin, MADV_POPULATE_WRITE) != 0) return;
  }
}

// Nothing before the first use: a mount that is never read takes no memory.
bool RamArena::wants_population() const {
  return populated_until_ < used_until_ + populate_ahead_of(used_until_);
}

std::optional<Block> RamArena::allocate(uint64_t length, MemoryAccount& account, uint64_t reserve) {
  const auto wanted = static_cast<uint32_t>((length + unit_ - 1) / unit_);
  if (!account.charge(wanted * unit_, reserve)) return std::nullopt;
  std::vector<UnitRun> more;
  MutexLock lock(mutex_);
  const UnitRun first = free_.take(wanted);
  for (uint32_t have = first.count; have < wanted;) {
    more.push_back(free_.take(wanted - have));
    have += more.back().count;
  }
  uint64_t until = first.first + uint64_t{first.count};
  for (const UnitRun run : more) until = std::max(until, run.first + uint64_t{run.count});
  if (until * unit_ > used_until_) {
    used_until_ = until * unit_;
    if (wants_population()) used_more_.notify_one();
  }
  return Block(this, &account, first, std::move(more), wanted);
}

void RamArena::release(const Block& block) {
  {
    MutexLock lock(mutex_);
    free_.release(block.first_);
    for (const UnitRun run : block.more_) free_.release(run);
  }
  block.account_->refund(block.capacity());
}

}  // namespace clairfs
