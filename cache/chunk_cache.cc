#include "cache/chunk_cache.h"

#include <algorithm>
#include <cerrno>
#include <thread>

#include <fmt/format.h>

#include "cache/base/checksum.h"
#include "cache/chunk_key.h"
#include "cache/io_memory.h"

namespace clairfs {
namespace {

// Share of the transit memory that chunks waiting to be written to NVMe may hold. When the disk is slower
// than the source, the rest is not written this time, so that readers never wait for writes; staging may pin
// half, which leaves a quarter to readers at any time, half of that to hits of NVMe alone.
constexpr uint64_t kWriteBehindDivisor = 4;

// Share of the transit memory that may be lost to a network that would not let go of it; after that nothing
// is asked of other nodes. Half of what fetches that wait for other nodes may have (chunk_cache_memory.cc).
constexpr uint64_t kLostDivisor = 8;

}  // namespace

uint64_t ChunkCache::transit_capacity(uint32_t chunk_size) {
  return std::max<uint64_t>(8 * round_to_pages(chunk_size), 16ULL << 20);
}

Result<std::unique_ptr<ChunkCache>> ChunkCache::create(const Parts& parts, uint64_t ram_capacity) {
  ram_capacity = ram_capacity / kPageSize * kPageSize;
  const uint64_t transit = transit_capacity(parts.catalog.chunk_size());
  auto ram_arena = RamArena::create(ram_capacity, kRamUnit);
  if (!ram_arena) return ram_arena.error();
  auto transit_arena = RamArena::create(transit);
  if (!transit_arena) return transit_arena.error();
  return std::unique_ptr<ChunkCache>(
      new ChunkCache(parts, std::move(*ram_arena), std::move(*transit_arena), ram_capacity, transit));
}

ChunkCache::ChunkCache(const Parts& parts, std::unique_ptr<RamArena> ram_arena,
                       std::unique_ptr<RamArena> transit_arena, uint64_t ram_capacity, uint64_t transit_bytes)
    : catalog_(parts.catalog),
      source_(parts.source),
      stores_(parts.stores),
      policy_(parts.policy),
      metrics_(parts.metrics),
      log_(parts.log),
      ram_arena_(std::move(ram_arena)),
      transit_arena_(std::move(transit_arena)),
      ram_(ram_capacity, metrics_.ram_bytes),
      transit_(transit_bytes, metrics_.transit_bytes),
      slots_(parts.catalog.chunk_count()) {
  metrics_.ram_capacity.set(static_cast<int64_t>(ram_capacity));
  metrics_.transit_capacity.set(static_cast<int64_t>(transit_bytes));
  adopt_warm_chunks();
  if (parts.verify_warm_files && metrics_.nvme_chunks.value() > 0) {
    unverified_ = std::vector<std::atomic<bool>>(catalog_.size());
    for (auto& file : unverified_) file = true;
  }
}

// What the stores kept over a restart is found by its key; what nobody can ask for any more is dropped.
void ChunkCache::adopt_warm_chunks() {
  for (size_t i = 0; i < stores_.size(); ++i) {
    if (stores_[i]->chunks() == 0) continue;
    std::unordered_map<ChunkKey, bool> known;
    bool ours = false;
    for (uint32_t c = 0; c < catalog_.chunk_count(); ++c) {
      const ChunkId chunk{c};
      const ChunkKey key = chunk_key(catalog_, chunk);
      if (stores_[i]->length_of(key) != catalog_.range(chunk).length) continue;
      ours = true;
      if (slots_[c].store != 0) continue;  // another store has it, too
      slots_[c].store = static_cast<uint8_t>(i + 1);
      policy_.kept(chunk, Tier::nvme);
      known[key] = true;
    }
    const uint64_t found = stores_[i]->chunks();
    if (known.size() < found)
      stores_[i]->drop_unless([&](const ChunkKey& key) { return known.contains(key); });
    if (!ours) {
      log_.warn(
          "{}: none of the {} chunks kept there is of this dataset as it is now, and they were dropped; give "
          "each dataset an NVMe directory of its own",
          stores_[i]->directory(), found);
      continue;
    }
    log_.info("{}: {} chunks of an earlier mount are warm, {} were dropped", stores_[i]->directory(),
              known.size(), found - known.size());
  }
}

ChunkRef ChunkCache::resident(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  return slots_[chunk.index()].data;
}

Tier ChunkCache::tier_of(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  const Slot& slot = slots_[chunk.index()];
  if (slot.data && &slot.data->block.account() == &ram_) return Tier::ram;
  return slot.store != 0 ? Tier::nvme : Tier::none;
}

void ChunkCache::acquire(ChunkId chunk, Urgency urgency, const AcquireDone& done) {
  if (ChunkRef data = resident(chunk)) return done(AcquiredChunk{std::move(data), Origin::ram, false, 0});
  const ChunkRange range = catalog_.range(chunk);
  join_or_start(chunk, urgency, {true, asks_peers(range.file, range.offset), false}, done);
}

bool ChunkCache::acquire_here(ChunkId chunk, Urgency urgency, bool or_from_pfs, const AcquireDone& done) {
  return join_or_start(chunk, urgency, {or_from_pfs, false, true}, done);
}

// Whether other nodes may be asked for it, and lose memory doing so.
bool ChunkCache::asks_peers(FileId file, uint64_t offset) const {
  return lost_bytes_.load() <= transit_.capacity() / kLostDivisor && source_.may_wait_for_peers(file, offset);
}

bool ChunkCache::join_or_start(ChunkId chunk, Urgency urgency, Scope scope, const AcquireDone& done) {
  ChunkRef data;
  bool starts = false;
  bool raised = false;
  ChunkSource::Ticket ticket = 0;
  {
    Shard& home = shard(chunk);
    MutexLock lock(home.mutex);
    const Slot& slot = slots_[chunk.index()];
    data = slot.data;
    if (!data) {
      auto flight = home.flights.find(chunk);
      if (flight == home.flights.end()) {
        if (!scope.pfs && slot.store == 0) return false;
        flight = home.flights.try_emplace(chunk).first;
        flight->second.peers = scope.peers;
        flight->second.urgency = urgency;
        starts = true;
      } else if (scope.for_peer && flight->second.peers) {
        return false;
      }
      flight->second.waiters.push_back(done);
      if (urgency < flight->second.urgency) {
        flight->second.urgency = urgency;
        ticket = flight->second.ticket;
        raised = true;
      }
    }
  }
  if (data) {
    done(AcquiredChunk{std::move(data), Origin::ram, false, 0});
  } else if (starts) {
    begin_or_park(chunk, urgency);
  } else if (ticket != 0) {
    source_.expedite(ticket, urgency);
  } else if (raised) {
    raise_parked(chunk);
  }
  return true;
}

// One chunk on its way into memory.
struct ChunkCache::Fetch {
  ChunkId chunk;
  Urgency urgency;
  ChunkRef data;
  Tier keep = Tier::none;     // where it is to stay
  size_t store = 0;           // the NVMe store that has it, if any
  bool peers = false;         // may wait for another node
  uint64_t peer_transit = 0;  // bytes of its share of the transit memory
};

void ChunkCache::begin_or_park(ChunkId chunk, Urgency urgency) {
  if (const std::optional<Way> lacking = begin(chunk, urgency))
    park(urgency, *lacking, {chunk, [this, chunk, urgency] { return begin(chunk, urgency); }});
}

// Reserves memory and starts the transfer, unless there is no memory now: the answer is what lacks it.
std::optional<ChunkCache::Way> ChunkCache::begin(ChunkId chunk, Urgency urgency) {
  if (stopping_.load()) {
    complete(chunk, Error{ECANCELED, "the mount is being shut down"});
    return std::nullopt;
  }
  const uint32_t length = catalog_.range(chunk).length;
  size_t store = 0;
  bool peers = false;
  {
    MutexLock lock(shard(chunk).mutex);
    store = slots_[chunk.index()].store;
    bool& may_wait = shard(chunk).flights.at(chunk).peers;
    may_wait = may_wait && store == 0;
    peers = may_wait;
  }
  // What NVMe keeps is only moved up when RAM can hold everything: else the copy would cost another chunk's
  // place.
  const bool moves = store == 0 || ram_.capacity() >= catalog_.total_bytes();
  Tier keep = moves ? make_place(chunk) : Tier::none;
  if (store != 0 && keep == Tier::nvme) keep = Tier::none;  // it is there already
  std::optional<Block> block;
  // What comes from NVMe comes in pages.
  if (keep == Tier::ram && store == 0) block = ram_arena_->allocate(length, ram_);
  const bool in_ram = block.has_value();
  const bool verifies = store != 0 && must_verify(catalog_.range(chunk).file);
  const Way way = peers ? Way::peer : store == 0 || verifies ? Way::source : Way::nvme;
  if (!block) block = reserve_transit(length, way);
  if (!block) return way;

  outstanding_.fetch_add(1);
  const ChunkRef data(new ChunkData(std::move(*block), length, *this));
  const auto fetch = std::make_shared<Fetch>(
      Fetch{chunk, urgency, data, keep, store - 1, peers, peers && !in_ram ? data->block.capacity() : 0});
  if (keep == Tier::nvme) nvme_promised_.fetch_add(data->block.capacity());
  if (store == 0) {
    fetch_from_source(fetch);
  } else if (verifies) {
    verify_then_fetch(fetch);
  } else {
    fetch_from_nvme(fetch);
  }
  return std::nullopt;
}

// Asks the policy where the chunk is to stay, and drops what has to make room.
Tier ChunkCache::make_place(ChunkId chunk) {
  const TierChoice choice = policy_.place(chunk, catalog_.range(chunk).length, space());
  for (const ChunkId victim : choice.evict) evict(victim, choice.tier);
  return choice.tier;
}

bool ChunkCache::must_verify(FileId file) const {
  return !unverified_.empty() && unverified_[file.index()].load();
}

// An empty fetch reads nothing but compares the file with the catalog. With another ctime the file stays
// unverified: other chunks of it may be on NVMe, too.
void ChunkCache::verify_then_fetch(const std::shared_ptr<Fetch>& fetch) {
  FetchRequest request;
  request.file = catalog_.range(fetch->chunk).file;
  request.done = [this, fetch, file = request.file](const Result<Origin>& outcome) {
    if (!outcome && outcome.error().code == kOtherCtime) {
      stores_[fetch->store]->drop(chunk_key(catalog_, fetch->chunk));
      return fetch_without_nvme(fetch);
    }
    if (!outcome) return finish(*fetch, outcome.error());
    unverified_[file.index()] = false;
    fetch_from_nvme(fetch);
  };
  ask_source(*fetch, std::move(request));
}

void ChunkCache::fetch_from_nvme(const std::shared_ptr<Fetch>& fetch) {
  const auto pages = fetch->data->block.all();
  stores_[fetch->store]->read(chunk_key(catalog_, fetch->chunk), pages, [this, fetch](const Status& status) {
    if (status) return finish(*fetch, Origin::nvme);
    fetch_without_nvme(fetch);
  });
}

// NVMe does not have the chunk any more.
void ChunkCache::fetch_without_nvme(const std::shared_ptr<Fetch>& fetch) {
  {
    MutexLock lock(shard(fetch->chunk).mutex);
    slots_[fetch->chunk.index()].store = 0;
  }
  policy_.dropped(fetch->chunk, Tier::nvme);
  fetch->keep = make_place(fetch->chunk);
  if (fetch->keep == Tier::nvme) nvme_promised_.fetch_add(fetch->data->block.capacity());
  fetch_from_source(fetch);
}

void ChunkCache::fetch_from_source(const std::shared_ptr<Fetch>& fetch) {
  const ChunkRange range = catalog_.range(fetch->chunk);
  FetchRequest request;
  request.file = range.file;
  request.offset = range.offset;
  request.length = range.length;
  request.memory = fetch->data->block.slices(0, range.length);
  request.no_peers = !fetch->peers;
  request.done = [this, fetch](const Result<Origin>& outcome) { finish(*fetch, outcome); };
  ask_source(*fetch, std::move(request));
}

// With the urgency of whoever has joined by now, and so that those who join later can raise it.
void ChunkCache::ask_source(const Fetch& fetch, FetchRequest request) {
  const ChunkId chunk = fetch.chunk;
  const Urgency urgency = urgency_of(chunk).value_or(fetch.urgency);
  request.urgency = urgency;
  outstanding_.fetch_add(1);  // until this function is done with the cache: the fetch may end before it
  const ChunkSource::Ticket ticket = source_.fetch(std::move(request));
  Urgency by_now = urgency;
  {
    MutexLock lock(shard(chunk).mutex);
    const auto flight = shard(chunk).flights.find(chunk);
    if (flight != shard(chunk).flights.end()) {
      flight->second.ticket = ticket;
      by_now = flight->second.urgency;
    }
  }
  if (by_now < urgency) source_.expedite(ticket, by_now);  // somebody joined before the ticket was known
  outstanding_.fetch_sub(1);
}

// The end of every fetch. The data is let go of before the operation counts as ended: after that the cache
// may be destroyed.
void ChunkCache::finish(Fetch& fetch, const Result<Origin>& outcome) {
  ChunkRef data = std::move(fetch.data);
  if (fetch.keep == Tier::nvme) nvme_promised_.fetch_sub(data->block.capacity());
  if (fetch.peer_transit != 0) {
    peer_transit_.fetch_sub(fetch.peer_transit);
    memory_released();
  }
  if (outcome) {
    if (fetch.keep == Tier::ram && &data->block.account() != &ram_) data = moved_to_ram(std::move(data));
    // Counted before those who waited hear of it: they may fetch more.
    const bool written = fetch.keep == Tier::nvme && count_write(data->block.capacity());
    publish(fetch.chunk, data, *outcome);
    if (written) write_behind(fetch.chunk, data);
  } else if (outcome.error().code == kMemoryLost) {
    lose(data);
    fetch_again(fetch.chunk, fetch.urgency);
  } else {
    complete(fetch.chunk, outcome.error());
  }
  operation_ended(std::move(data));
}

// Into other memory, and not from another node again, so that this ends.
void ChunkCache::fetch_again(ChunkId chunk, Urgency urgency) {
  {
    MutexLock lock(shard(chunk).mutex);
    Flight& flight = shard(chunk).flights.at(chunk);
    flight.peers = false;
    flight.ticket = 0;
    urgency = flight.urgency;
  }
  begin_or_park(chunk, urgency);
}

// For what came from NVMe, or when memory of the tier was still pinned as the fetch began.
ChunkRef ChunkCache::moved_to_ram(ChunkRef data) {
  auto block = ram_arena_->allocate(data->length, ram_);
  if (!block) return data;
  copy_memory(data->block.slices(0, data->length), block->slices(0, data->length));
  return ChunkRef(new ChunkData(std::move(*block), data->length, *this));
}

// Makes fetched bytes known and answers all who wait.
void ChunkCache::publish(ChunkId chunk, const ChunkRef& data, Origin origin) {
  const bool in_ram = &data->block.account() == &ram_;
  if (in_ram) metrics_.ram_chunks.add(1);
  {
    MutexLock lock(shard(chunk).mutex);
    slots_[chunk.index()].data = data;
  }
  if (in_ram) {
    policy_.kept(chunk, Tier::ram);
  } else {
    MutexLock lock(transit_mutex_);
    transit_order_.push_back(chunk);
  }
  complete(chunk, AcquiredChunk{data, origin, false, 0});
}

void ChunkCache::complete(ChunkId chunk, const Result<AcquiredChunk>& result) {
  std::vector<AcquireDone> waiters;
  {
    MutexLock lock(shard(chunk).mutex);
    auto flight = shard(chunk).flights.extract(chunk);
    waiters = std::move(flight.mapped().waiters);
  }
  bool joined = false;
  for (AcquireDone& done : waiters) {
    if (result) {
      done(AcquiredChunk{result->data, result->origin, joined, 0});
    } else {
      done(result.error());
    }
    joined = true;
  }
}

// False if NVMe has too much to write already.
bool ChunkCache::count_write(uint64_t bytes) {
  if (write_behind_bytes_.fetch_add(bytes) + bytes <= transit_.capacity() / kWriteBehindDivisor) return true;
  write_behind_bytes_.fetch_sub(bytes);
  metrics_.nvme_writes_skipped.add();
  return false;
}

// REQUIRES: the write is counted.
void ChunkCache::write_behind(ChunkId chunk, const ChunkRef& data) {
  const uint64_t bytes = data->block.capacity();
  size_t index = 0;
  NvmeStore* store = roomiest_store(bytes, index);
  if (store == nullptr || stopping_.load()) {
    write_behind_bytes_.fetch_sub(bytes);
    return;
  }
  outstanding_.fetch_add(1);
  const uint64_t checksum = xxh3_64(data->block.slices(0, data->length));
  store->write(chunk_key(catalog_, chunk), data->block.all(), data->length, checksum,
               [this, chunk, bytes, index, held = data](const Status& status) mutable {
                 write_behind_bytes_.fetch_sub(bytes);
                 if (status) {
                   {
                     MutexLock lock(shard(chunk).mutex);
                     slots_[chunk.index()].store = static_cast<uint8_t>(index + 1);
                   }
                   policy_.kept(chunk, Tier::nvme);
                 }
                 operation_ended(std::move(held));
               });
}

// Keeps the memory, and its charge, until the end.
void ChunkCache::lose(const ChunkRef& data) {
  const uint64_t lost = lost_bytes_.fetch_add(data->block.capacity()) + data->block.capacity();
  log_.warn("the network did not let go of memory: {} bytes are lost by now{}", lost,
            lost <= transit_.capacity() / kLostDivisor ? "" : "; nothing more is asked of other nodes");
  MutexLock lock(transit_mutex_);
  lost_.push_back(data);
}

void ChunkCache::operation_ended(ChunkRef data) {
  data = ChunkRef();
  outstanding_.fetch_sub(1);
}

bool ChunkCache::stop(Duration patience) {
  stopping_.store(true);
  source_.stop();
  retry_parked();
  // Polled: this happens once, and std::atomic::wait knows no deadline.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (outstanding_.load() != 0 || parked_count_.load() != 0) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

TierSpace ChunkCache::space() const {
  TierSpace space;
  space.ram = ram_.capacity() - std::min(ram_.used(), ram_.capacity());
  space.nvme_writable = false;
  // What would have to make room might go for nothing: nobody waits for the disk.
  space.nvme_behind = writes_are_behind();
  if (space.nvme_behind) return space;
  for (const NvmeStore* store : stores_) {
    space.nvme = std::max(space.nvme, store->available());
    space.nvme_writable = space.nvme_writable || store->writable();
  }
  space.nvme -= std::min(space.nvme, nvme_promised_.load());
  return space;
}

bool ChunkCache::would_keep(ChunkId chunk, const TierSpace& space) const {
  return policy_.would_keep(chunk, catalog_.range(chunk).length, space);
}

bool ChunkCache::writes_are_behind() const {
  return write_behind_bytes_.load() > transit_.capacity() / kWriteBehindDivisor / 2;
}

NvmeStore* ChunkCache::roomiest_store(uint64_t bytes, size_t& index) const {
  NvmeStore* best = nullptr;
  uint64_t most = bytes;
  for (size_t i = 0; i < stores_.size(); ++i) {
    const uint64_t available = stores_[i]->available();
    if (available < most) continue;
    most = available;
    best = stores_[i];
    index = i;
  }
  return best;
}

void ChunkCache::evict(ChunkId chunk, Tier tier) {
  ChunkRef dropped;  // destroyed outside the lock
  uint8_t store = 0;
  {
    MutexLock lock(shard(chunk).mutex);
    Slot& slot = slots_[chunk.index()];
    if (tier == Tier::nvme) {
      store = std::exchange(slot.store, uint8_t{0});
    } else if (slot.data && &slot.data->block.account() == &ram_) {
      dropped = std::move(slot.data);
    }
  }
  if (store != 0) {
    stores_[store - 1]->drop(chunk_key(catalog_, chunk));
    metrics_.nvme_evictions.add();
  }
  if (dropped) {
    metrics_.ram_evictions.add();
    metrics_.ram_chunks.add(-1);
  }
}

std::optional<Urgency> ChunkCache::urgency_of(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  const auto flight = shard(chunk).flights.find(chunk);
  return flight == shard(chunk).flights.end() ? std::nullopt : std::optional(flight->second.urgency);
}

}  // namespace clairfs
