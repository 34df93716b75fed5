#include "cache/chunks/transit_pool.h"

#include <utility>

namespace clairfs {

TransitPool::TransitPool(std::unique_ptr<RamArena> arena, const TransitShares& shares, bool has_nvme,
                         ChunkTable& table, Metrics& metrics, Logger& log)
    : arena_(std::move(arena)),
      shares_(shares),
      has_nvme_(has_nvme),
      table_(table),
      log_(log),
      account_(shares.capacity, metrics.transit_bytes) {
  metrics.transit_capacity.set(static_cast<int64_t>(shares.capacity));
  thread_ = NamedThread("transit", [this] { begin_waiting(); });
}

TransitPool::~TransitPool() {
  end();
}

void TransitPool::end() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  std::vector<ChunkRef> lost;  // tells this when it goes, so without the lock
  const MutexLock lock(mutex_);
  lost.swap(lost_);
}

void TransitPool::wait(TransitClass transit_class, std::shared_ptr<const Demand> demand,
                       TransitQueue::Attempt attempt) {
  waiting_.add(transit_class, std::move(demand), std::move(attempt));
  wake();  // memory may have come free before it was known that somebody waits
}

void TransitPool::memory_released() {
  if (!waiting_.empty()) wake();
}

void TransitPool::wake() {
  MutexLock lock(mutex_);
  news_ = true;
  wake_.notify_one();
}

// Body of the thread.
void TransitPool::begin_waiting() {
  MutexLock lock(mutex_);
  while (!ending_) {
    if (!news_) {
      wake_.wait(lock);
      continue;
    }
    news_ = false;
    lock.unlock();
    while (waiting_.begin_one()) {
    }
    lock.lock();
  }
}

std::optional<Block> TransitPool::reserve(uint64_t length, TransitClass transit_class) {
  if (transit_class == TransitClass::source) return claim(length, transit_class);
  const bool from_nvme = transit_class == TransitClass::nvme;
  std::atomic<uint64_t>& taken = from_nvme ? from_nvme_ : others_;
  const uint64_t bytes = round_to_pages(length);
  std::optional<Block> block;
  if (taken.fetch_add(bytes) + bytes <= (from_nvme ? shares_.from_nvme : shares_.others))
    block = claim(length, transit_class);
  if (!block) taken.fetch_sub(bytes);
  return block;
}

void TransitPool::leave(TransitClass transit_class, uint64_t bytes) {
  if (bytes == 0) return;
  (transit_class == TransitClass::nvme ? from_nvme_ : others_).fetch_sub(bytes);
  memory_released();
}

std::optional<Block> TransitPool::allocate(uint64_t length, TransitClass transit_class) {
  const bool spares = transit_class != TransitClass::nvme && has_nvme_;
  return arena_->allocate(length, account_, spares ? shares_.nvme_reads_beside(hung_.load()) : 0);
}

// Looks at each chunk once: those that somebody pins go to the end.
std::optional<Block> TransitPool::claim(uint64_t length, TransitClass transit_class) {
  if (auto block = allocate(length, transit_class)) return block;
  size_t candidates = 0;
  {
    MutexLock lock(mutex_);
    candidates = order_.size();
  }
  for (; candidates > 0; --candidates) {
    ChunkId oldest;
    {
      MutexLock lock(mutex_);
      if (order_.empty()) break;
      oldest = order_.front();
      order_.pop_front();
    }
    bool pinned = false;
    ChunkRef dropped = table_.take_from_transit(oldest, pinned);
    if (pinned) {
      MutexLock lock(mutex_);
      order_.push_back(oldest);
    }
    if (!dropped) continue;
    dropped = ChunkRef();
    if (auto block = allocate(length, transit_class)) return block;
  }
  return std::nullopt;
}

void TransitPool::add(ChunkId chunk) {
  MutexLock lock(mutex_);
  order_.push_back(chunk);
}

void TransitPool::lose(const ChunkRef& data) {
  const uint64_t lost = lost_bytes_.fetch_add(data->block.capacity()) + data->block.capacity();
  log_.warn("a cancelled receive could not be withdrawn; {} bytes of memory stay quarantined until restart{}",
            lost, lost <= shares_.lost ? "" : "; nothing more is asked of other nodes");
  MutexLock lock(mutex_);
  lost_.push_back(data);
}

}  // namespace clairfs
