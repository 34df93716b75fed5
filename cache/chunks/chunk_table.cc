#include "cache/chunks/chunk_table.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace clairfs {
namespace {

// Of what is wanted and of the rest each has at least one part in so many of a chunk. A smaller rest costs
// hardly anything, and a chunk of which so little is wanted has many records: to fetch them apart would
// double the operations.
constexpr uint64_t kLeastPart = 8;

// The pages that the waiters of a fetch want of a chunk of `length` bytes, and those between them.
ChunkPiece wanted_by(const std::vector<FetchWaiter>& waiters, uint64_t length) {
  ChunkPiece wanted{length, 0};
  for (const FetchWaiter& waiter : waiters) {
    wanted.begin = std::min(wanted.begin, waiter.piece.begin);
    wanted.end = std::max(wanted.end, waiter.piece.end);
  }
  wanted.begin -= wanted.begin % kPageSize;
  wanted.end = wanted.end < length ? std::min(round_to_pages(wanted.end), length) : length;
  return wanted;
}

// What comes first of a chunk of `length` bytes, if it comes in parts.
std::optional<ChunkPiece> first_part(const Fetch& fetch, uint64_t length) {
  if (fetch.demand.now().kind != Priority::Kind::prefetch) return std::nullopt;
  const ChunkPiece wanted = wanted_by(fetch.waiters, length);
  const uint64_t bytes = wanted.end - wanted.begin;
  if (kLeastPart * bytes < length || kLeastPart * (length - bytes) <= length) return std::nullopt;
  return wanted;
}

}  // namespace

ChunkTable::Joined ChunkTable::join(FetchScope scope, ChunkId chunk, const ChunkPiece& piece, bool may_wait,
                                    Priority priority, const Use& use, const AcquireDone& done) {
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
    if (has(*found->second, piece)) {
      joined.data = found->second->parts_data;
      return joined;
    }
    joined.fetch = found->second;
    joined.raised = raise_piece(joined.fetch, piece, priority);
  }
  if (joined.fetch->use.order == OrderId()) joined.fetch->use = use;
  joined.fetch->waiters.push_back({done, piece, !joined.starts});
  return joined;
}

ChunkTable::Raised ChunkTable::raise(const FetchPtr& fetch, const ChunkPiece& piece, Priority priority) {
  MutexLock lock(shard(fetch->chunk).mutex);
  return raise_piece(fetch, piece, priority);
}

// The parts of the fetch that have some of the piece.
ChunkTable::Raised ChunkTable::raise_piece(const FetchPtr& fetch, const ChunkPiece& piece,
                                           Priority priority) {
  Raised raised;
  if (fetch->parts.empty() && fetch->demand.raise(priority)) raised.push_back(demand_of(fetch));
  for (const FetchPartPtr& part : fetch->parts) {
    if (!part->here && part->has_some_of(piece) && part->demand.raise(priority))
      raised.emplace_back(part, &part->demand);
  }
  return raised;
}

// Whether all parts that have some of the piece have come.
bool ChunkTable::has(const Fetch& fetch, const ChunkPiece& piece) {
  return !fetch.parts.empty() && std::all_of(fetch.parts.begin(), fetch.parts.end(), [&](const auto& part) {
    return part->here || !part->has_some_of(piece);
  });
}

std::vector<FetchPartPtr> ChunkTable::split(Fetch& fetch, uint64_t length) {
  MutexLock lock(shard(fetch.chunk).mutex);
  const std::optional<ChunkPiece> wanted = first_part(fetch, length);
  if (!wanted) return {};
  fetch.parts.push_back(std::make_shared<FetchPart>(*wanted, fetch.demand.now()));
  const Priority later{Priority::Kind::background, UINT64_MAX};
  for (const ChunkPiece& rest : {ChunkPiece{0, wanted->begin}, ChunkPiece{wanted->end, length}}) {
    if (rest.begin < rest.end) fetch.parts.push_back(std::make_shared<FetchPart>(rest, later));
  }
  fetch.parts_under_way = fetch.parts.size();
  fetch.parts_data = fetch.data;
  return fetch.parts;
}

bool ChunkTable::splits(const Fetch& fetch, uint64_t length) const {
  MutexLock lock(shard(fetch.chunk).mutex);
  return first_part(fetch, length).has_value();
}

ChunkTable::PartEnded ChunkTable::part_ended(Fetch& fetch, FetchPart& part, bool here) {
  PartEnded ended;
  Shard& home = shard(fetch.chunk);
  MutexLock lock(home.mutex);
  ended.last = --fetch.parts_under_way == 0;
  part.here = here;
  if (!here && !fetch.failed) {
    ended.waiters = take_out(home, fetch.chunk);
    fetch.failed = true;
  }
  ended.failed = fetch.failed;
  if (ended.failed || ended.last) return ended;
  const auto served = std::stable_partition(fetch.waiters.begin(), fetch.waiters.end(),
                                            [&](const auto& waiter) { return !has(fetch, waiter.piece); });
  std::move(served, fetch.waiters.end(), std::back_inserter(ended.waiters));
  fetch.waiters.erase(served, fetch.waiters.end());
  return ended;
}

// The fetch of the chunk ends; who still wait for it.
std::vector<FetchWaiter> ChunkTable::take_out(Shard& home, ChunkId chunk) {
  const FetchPtr fetch = std::move(home.fetches.extract(chunk).mapped());
  fetch->parts_data = ChunkRef();
  return std::move(fetch->waiters);
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
  published.waiters = take_out(home, fetch.chunk);
  return published;
}

std::vector<FetchWaiter> ChunkTable::abandon(const Fetch& fetch) {
  Shard& home = shard(fetch.chunk);
  MutexLock lock(home.mutex);
  return take_out(home, fetch.chunk);
}

ChunkRef ChunkTable::resident(ChunkId chunk) const {
  MutexLock lock(shard(chunk).mutex);
  return slots_[chunk.index()].data;
}

bool ChunkTable::in_memory(ChunkId chunk, const ChunkPiece& piece) const {
  Shard& home = shard(chunk);
  MutexLock lock(home.mutex);
  if (slots_[chunk.index()].data) return true;
  const auto found = home.fetches.find(chunk);
  return found != home.fetches.end() && has(*found->second, piece);
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
