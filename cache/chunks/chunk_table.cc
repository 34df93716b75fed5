#include "cache/chunks/chunk_table.h"

#include <utility>

namespace clairfs {

ChunkTable::Joined ChunkTable::join(FetchScope scope, ChunkId chunk, bool may_wait, Priority priority,
                                    const Use& use, const AcquireDone& done) {
  Joined joined;
  Shard& home = shard(chunk);
  MutexLock lock(home.mutex);
  const Slot& slot = slots_[chunk.index()];
  if (slot.data) {
    joined.data = slot.data;
    return joined;
  }
  const auto found = home.fetches.find(chunk);
  if (found == home.fetches.end()) {
    if (scope == FetchScope::local_only && slot.store == 0) return joined;
    joined.fetch = std::make_shared<Fetch>(chunk, priority);
    joined.fetch->may_wait = may_wait;
    joined.starts = true;
    home.fetches[chunk] = joined.fetch;
  } else {
    if (scope != FetchScope::anywhere && found->second->may_wait) return joined;
    joined.fetch = found->second;
    joined.raised = joined.fetch->demand.raise(priority);
  }
  if (joined.fetch->use.order == OrderId()) joined.fetch->use = use;
  joined.fetch->waiters.push_back(done);
  return joined;
}

ChunkTable::Settled ChunkTable::settle(Fetch& fetch) {
  MutexLock lock(shard(fetch.chunk).mutex);
  const uint8_t store = slots_[fetch.chunk.index()].store;
  fetch.may_wait = fetch.may_wait && store == 0;
  return {number(store), fetch.use};
}

void ChunkTable::keep_from_others(Fetch& fetch) {
  MutexLock lock(shard(fetch.chunk).mutex);
  fetch.may_wait = false;
}

ChunkTable::Published ChunkTable::publish(const Fetch& fetch, const ChunkRef& data, bool in_ram) {
  Published published;
  Shard& home = shard(fetch.chunk);
  MutexLock lock(home.mutex);
  Slot& slot = slots_[fetch.chunk.index()];
  slot.data = data;
  slot.in_ram = in_ram;
  if (in_ram) published.store = number(std::exchange(slot.store, uint8_t{0}));
  published.waiters = std::move(home.fetches.extract(fetch.chunk).mapped()->waiters);
  return published;
}

std::vector<AcquireDone> ChunkTable::abandon(const Fetch& fetch) {
  Shard& home = shard(fetch.chunk);
  MutexLock lock(home.mutex);
  return std::move(home.fetches.extract(fetch.chunk).mapped()->waiters);
}

ChunkRef ChunkTable::resident(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  return slots_[chunk.index()].data;
}

ChunkRef ChunkTable::only_in_ram(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  const Slot& slot = slots_[chunk.index()];
  return slot.data && slot.in_ram && slot.store == 0 ? slot.data : ChunkRef();
}

ChunkRef ChunkTable::only_in_transit(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  const Slot& slot = slots_[chunk.index()];
  return slot.data && !slot.in_ram && slot.store == 0 ? slot.data : ChunkRef();
}

Tier ChunkTable::tier_of(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  const Slot& slot = slots_[chunk.index()];
  if (slot.data && slot.in_ram) return Tier::ram;
  return slot.store != 0 ? Tier::nvme : Tier::none;
}

bool ChunkTable::here_or_coming(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  const Slot& slot = slots_[chunk.index()];
  return slot.data || slot.store != 0 || shard(chunk).fetches.contains(chunk);
}

bool ChunkTable::on_nvme(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  return slots_[chunk.index()].store != 0;
}

std::optional<size_t> ChunkTable::set_store(ChunkId chunk, size_t store) {
  MutexLock lock(shard(chunk).mutex);
  uint8_t& has = slots_[chunk.index()].store;
  if (has == 0) has = static_cast<uint8_t>(store + 1);
  return has == store + 1 ? std::nullopt : number(has);
}

std::optional<size_t> ChunkTable::clear_store(ChunkId chunk) {
  MutexLock lock(shard(chunk).mutex);
  return number(std::exchange(slots_[chunk.index()].store, uint8_t{0}));
}

ChunkRef ChunkTable::take_from_ram(ChunkId chunk) {
  MutexLock lock(shard(chunk).mutex);
  Slot& slot = slots_[chunk.index()];
  return slot.in_ram ? std::move(slot.data) : ChunkRef();
}

bool ChunkTable::move_to_ram(ChunkId chunk, ChunkRef data) {
  MutexLock lock(shard(chunk).mutex);
  Slot& slot = slots_[chunk.index()];
  if (!slot.data || slot.in_ram || slot.store != 0) return false;
  std::swap(slot.data, data);
  slot.in_ram = true;
  return true;
}

ChunkRef ChunkTable::take_from_transit(ChunkId chunk, bool& pinned) {
  MutexLock lock(shard(chunk).mutex);
  Slot& slot = slots_[chunk.index()];
  const bool here = slot.data && !slot.in_ram;
  pinned = here && !slot.data.unique();
  return here && !pinned ? std::move(slot.data) : ChunkRef();
}

void ChunkTable::clear() {
  for (uint32_t c = 0; c < slots_.size(); ++c) {
    MutexLock lock(shard(ChunkId(c)).mutex);
    slots_[c].data = ChunkRef();
  }
}

}  // namespace clairfs
