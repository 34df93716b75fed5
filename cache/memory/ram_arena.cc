#include "cache/memory/ram_arena.h"

#include <algorithm>
#include <cerrno>
#include <iterator>

#include <sys/mman.h>

#include "cache/base/units.h"

namespace clairfs {
namespace {

// Enough for some ten milliseconds of fetching at 1 GB/s, little enough not to count.
constexpr uint64_t kPopulateAhead = 16U << 20;
constexpr uint64_t kPopulateStep = kPopulateAhead / 4;

}  // namespace

bool MemoryAccount::charge(uint64_t bytes, uint64_t spared) {
  const uint64_t limit = capacity_ - spared;
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
  const auto add = [&](Run run) {
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
  for (const Run run : more_) {
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
  if (capacity >= most) return Error{EINVAL, "the RAM tier must be smaller than " + format_size(most)};
  auto memory = Mapping::anonymous(round_to_pages(capacity));
  if (!memory) return memory.error();
  return std::unique_ptr<RamArena>(new RamArena(std::move(*memory), unit));
}

RamArena::RamArena(Mapping memory, uint64_t unit) : memory_(std::move(memory)), unit_(unit) {
  // Fewer TLB misses when chunks are copied; memory is handed out densely, so little more becomes resident.
  if (memory_.size() > 0) ::madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE);
  MutexLock lock(mutex_);
  if (memory_.size() == 0) return;
  insert_free({0, static_cast<uint32_t>(memory_.size() / unit_)});
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
  return used_until_ > 0 && populated_until_ < used_until_ + kPopulateAhead - kPopulateStep;
}

std::optional<Block> RamArena::allocate(uint64_t length, MemoryAccount& account, uint64_t spared) {
  const auto wanted = static_cast<uint32_t>((length + unit_ - 1) / unit_);
  if (!account.charge(wanted * unit_, spared)) return std::nullopt;
  std::vector<Block::Run> more;
  MutexLock lock(mutex_);
  const Block::Run first = take_run(wanted);
  for (uint32_t have = first.count; have < wanted;) {
    more.push_back(take_run(wanted - have));
    have += more.back().count;
  }
  uint64_t until = first.first + uint64_t{first.count};
  for (const Block::Run run : more) until = std::max(until, run.first + uint64_t{run.count});
  if (until * unit_ > used_until_) {
    used_until_ = until * unit_;
    if (wants_population()) used_more_.notify_one();
  }
  return Block(this, &account, first, std::move(more), wanted);
}

// The smallest free run that holds `wanted` units, cut to size; the largest there is if none does.
Block::Run RamArena::take_run(uint32_t wanted) {
  auto found = free_by_count_.lower_bound({wanted, 0});
  if (found == free_by_count_.end()) found = std::prev(found);
  const auto [count, first] = *found;
  free_by_count_.erase(found);
  free_by_first_.erase(first);
  if (count > wanted) insert_free({first + wanted, count - wanted});
  return {first, std::min(count, wanted)};
}

void RamArena::insert_free(Block::Run run) {
  auto after = free_by_first_.lower_bound(run.first);
  if (after != free_by_first_.end() && after->first == run.first + run.count) {
    run.count += after->second;
    free_by_count_.erase({after->second, after->first});
    after = free_by_first_.erase(after);
  }
  if (after != free_by_first_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == run.first) {
      run = {before->first, before->second + run.count};
      free_by_count_.erase({before->second, before->first});
      free_by_first_.erase(before);
    }
  }
  free_by_first_[run.first] = run.count;
  free_by_count_.insert({run.count, run.first});
}

void RamArena::release(const Block& block) {
  {
    MutexLock lock(mutex_);
    insert_free(block.first_);
    for (const Block::Run run : block.more_) insert_free(run);
  }
  block.account_->refund(block.capacity());
}

}  // namespace clairfs
