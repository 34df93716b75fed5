// Transit memory: who may have how much of it, and who waits for some.
#include <algorithm>

#include "cache/chunk_cache.h"

namespace clairfs {
namespace {

// Share of the transit memory of fetches that wait for other nodes. Staging may pin half, some of it until an
// earlier chunk has come from a node, and writes to NVMe a quarter, which the disk gives back: so there is
// always an eighth for what comes from the PFS, and one for what comes from NVMe: what other nodes wait for.
// Two of the largest chunks at least, since transit memory holds eight.
constexpr uint64_t kPeerDivisor = 4;

// Share of the transit memory that only what comes from NVMe may take: one of the largest chunks at least.
constexpr uint64_t kNvmeDivisor = 8;

}  // namespace

// Within the share of the way, dropping what nobody uses any more.
std::optional<Block> ChunkCache::reserve_transit(uint64_t length, Way way) {
  const uint64_t bytes = way == Way::peer ? round_to_pages(length) : 0;
  std::optional<Block> block;
  if (bytes == 0 || peer_transit_.fetch_add(bytes) + bytes <= transit_.capacity() / kPeerDivisor)
    block = claim_transit(length, way);
  if (!block) peer_transit_.fetch_sub(bytes);
  return block;
}

std::optional<Block> ChunkCache::allocate_transit(uint64_t length, Way way) {
  const bool spares = way != Way::nvme && !stores_.empty();
  return transit_arena_->allocate(length, transit_, spares ? transit_.capacity() / kNvmeDivisor : 0);
}

std::optional<Block> ChunkCache::claim_transit(uint64_t length, Way way) {
  if (auto block = allocate_transit(length, way)) return block;
  size_t candidates = 0;
  {
    MutexLock lock(transit_mutex_);
    candidates = transit_order_.size();
  }
  for (; candidates > 0; --candidates) {
    ChunkRef dropped;  // destroyed outside the locks
    {
      MutexLock lock(transit_mutex_);
      if (transit_order_.empty()) break;
      const ChunkId oldest = transit_order_.front();
      transit_order_.pop_front();
      lock.unlock();
      bool pinned = false;
      {
        MutexLock shard_lock(shard(oldest).mutex);
        ChunkRef& data = slots_[oldest.index()].data;
        if (data && &data->block.account() == &transit_) {
          pinned = !data.unique();
          if (!pinned) dropped = std::move(data);
        }
      }
      lock.lock();
      if (pinned) transit_order_.push_back(oldest);
    }
    if (!dropped) continue;
    dropped = ChunkRef();
    if (auto block = allocate_transit(length, way)) return block;
  }
  return std::nullopt;
}

void ChunkCache::park(Urgency urgency, Way way, Parked parked) {
  const std::optional<ChunkId> chunk = parked.chunk;
  {
    MutexLock lock(transit_mutex_);
    parked_[static_cast<size_t>(urgency.kind)][static_cast<size_t>(way)].push_back(std::move(parked));
    parked_count_.fetch_add(1);
  }
  if (chunk) raise_parked(*chunk);  // somebody may have joined meanwhile
  retry_parked();                   // memory may have come free before it was known that somebody waits
}

void ChunkCache::memory_released() {
  if (parked_count_.load() > 0) retry_parked();
}

// One thread at a time. Who comes meanwhile leaves word and goes, and the one at work goes round again:
// memory that comes free just after an attempt failed is not overlooked, and an attempt that frees memory
// itself does not start the next one within itself.
void ChunkCache::retry_parked() {
  if (retries_wanted_.fetch_add(1) != 0) return;
  uint64_t wanted = 1;
  do {
    while (retry_oldest()) {
    }
    wanted = retries_wanted_.fetch_sub(wanted) - wanted;
  } while (wanted != 0);
}

// Readers first, then the oldest; but what goes one way never queues behind what goes another.
bool ChunkCache::retry_oldest() {
  std::array<bool, kWays> no_memory{};
  for (size_t i = 0; i < kWays * std::tuple_size_v<decltype(parked_)>; ++i) {
    const size_t kind = i / kWays;
    const size_t way = i % kWays;
    while (!no_memory[way]) {
      Parked parked;
      {
        MutexLock lock(transit_mutex_);
        Queue& queue = parked_[kind][way];
        if (queue.empty()) break;
        parked = std::move(queue.front());
        queue.pop_front();
      }
      const std::optional<ChunkId> chunk = parked.chunk;
      const std::optional<Way> lacking = parked.attempt();
      if (!lacking) {
        parked_count_.fetch_sub(1);
        return true;
      }
      // Not always the way it was parked for: NVMe may have lost the chunk meanwhile.
      const auto by_now = static_cast<size_t>(*lacking);
      no_memory[by_now] = true;
      {
        MutexLock lock(transit_mutex_);
        Queue& queue = parked_[kind][by_now];
        queue.insert(by_now == way ? queue.begin() : queue.end(), std::move(parked));
      }
      if (chunk) raise_parked(*chunk);  // somebody may have joined while it was in no queue
    }
  }
  return false;
}

// Moves the chunk to the queue of what its fetch is by now, if it waits for memory in that of something less
// urgent.
void ChunkCache::raise_parked(ChunkId chunk) {
  const std::optional<Urgency> urgency = urgency_of(chunk);
  if (!urgency || parked_count_.load() == 0) return;
  const auto kind = static_cast<size_t>(urgency->kind);
  MutexLock lock(transit_mutex_);
  for (size_t lower = kind + 1; lower < parked_.size(); ++lower) {
    for (size_t way = 0; way < kWays; ++way) {
      Queue& queue = parked_[lower][way];
      const auto found =
          std::find_if(queue.begin(), queue.end(), [chunk](const Parked& p) { return p.chunk == chunk; });
      if (found == queue.end()) continue;
      parked_[kind][way].push_back(std::move(*found));
      queue.erase(found);
      return;
    }
  }
}

}  // namespace clairfs
