#include "cache/chunks/tiers.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "cache/base/checksum.h"
#include "cache/catalog/chunk_key.h"
#include "cache/io/memory.h"

namespace clairfs {
namespace {

// What RAM may give up for chunks that were to go to NVMe while not one write ends: if the disk hangs, the
// rest of the RAM tier can still be read.
constexpr uint64_t kSwapDivisor = 4;

}  // namespace

Tiers::Tiers(Deps deps, std::unique_ptr<RamArena> ram, uint64_t ram_capacity, uint64_t most_writes)
    : deps_(std::move(deps)),
      ram_(std::move(ram)),
      account_(ram_capacity, deps_.metrics.ram_bytes),
      most_writes_(most_writes),
      backup_(deps_.catalog, deps_.stores, *this, promised_nvme_, deps_.metrics) {
  deps_.metrics.ram_capacity.set(static_cast<int64_t>(ram_capacity));
  if (!deps_.stores.empty()) grower_.emplace("nvme-grow");
}

// Chunks are found by their keys.
bool Tiers::adopt_warm_chunks() {
  bool any = false;
  deps_.metrics.nvme_warm_bytes.set(0);
  for (size_t i = 0; i < deps_.stores.size(); ++i) {
    const uint64_t found = deps_.stores[i]->chunks();
    if (found == 0) continue;
    if (const uint64_t known = adopt(i); known != 0) {
      any = true;
      deps_.log.info("{}: {} chunks of an earlier mount are warm, {} were dropped",
                     deps_.stores[i]->directory(), known, found - known);
    }
  }
  return any;
}

// The number of chunks that the store had of this dataset.
uint64_t Tiers::adopt(size_t store) {
  NvmeStore& nvme = *deps_.stores[store];
  const uint64_t found = nvme.chunks();
  std::unordered_set<ChunkKey> known;
  bool ours = false;
  for (uint32_t c = 0; c < deps_.catalog.chunk_count(); ++c) {
    const ChunkId chunk{c};
    const ChunkKey key = chunk_key(deps_.catalog, chunk);
    if (nvme.length_of(key) != length(chunk)) continue;
    ours = true;
    if (deps_.table.on_nvme(chunk)) continue;  // another store has it, too
    left_on_nvme(chunk, store);
    deps_.metrics.nvme_warm_bytes.add(static_cast<int64_t>(length(chunk)));
    known.insert(key);
  }
  if (known.size() < found) nvme.drop_unless([&](const ChunkKey& key) { return known.contains(key); });
  if (!ours) {
    deps_.log.warn(
        "{}: none of the {} chunks kept there is of this dataset as it is now, and they were dropped; give "
        "each dataset an NVMe directory of its own",
        nvme.directory(), found);
  }
  return known.size();
}

void Tiers::promise(ChunkId chunk, Tier tier) {
  if (tier == Tier::none) return;
  (tier == Tier::ram ? promised_ram_ : promised_nvme_).fetch_add(footprint(tier, length(chunk)));
}

void Tiers::take_back(ChunkId chunk, Tier tier) {
  if (tier == Tier::none) return;
  (tier == Tier::ram ? promised_ram_ : promised_nvme_).fetch_sub(footprint(tier, length(chunk)));
}

Tier Tiers::promise_room(ChunkId chunk, bool from_nvme, const Use& use) {
  MutexLock lock(placing_);
  if (from_nvme && !moves_up(chunk)) return Tier::none;
  const bool behind = writes_are_behind() && (from_nvme || (late_.load() > most_writes_ / 2 && !may_swap()));
  TierChoice choice = deps_.policy.choose_tier(chunk, length(chunk), space(behind), use);
  for (const ChunkId victim : choice.evict) evict(victim, choice.tier);
  if (behind && !from_nvme) {
    const TierSpace caught_up = space(false);
    for (const ChunkId victim : choice.evict) {
      const bool gone = deps_.table.tier_of(victim) == Tier::none;
      if (gone && caught_up.nvme > 0) deps_.metrics.nvme_writes_skipped.add();
    }
    // NVMe may have caught up when the chunk is here; if not, that is counted.
    if (choice.tier == Tier::none && would_keep(chunk, caught_up, use)) choice.tier = Tier::nvme;
  }
  const bool there_already = from_nvme && choice.tier == Tier::nvme;
  const Tier tier = there_already ? Tier::none : choice.tier;
  promise(chunk, tier);
  return tier;
}

// Whether a chunk that NVMe keeps shall go to RAM: never in the place of another chunk. Its room on NVMe is
// as good as free then, but to bring another chunk there costs a write.
bool Tiers::moves_up(ChunkId chunk) const {
  if (account_.capacity() >= deps_.catalog.total_bytes()) return true;
  if (footprint(Tier::ram, length(chunk)) > ram_room()) return false;
  if (!space().nvme_writable) return false;
  uint64_t kept = account_.used();
  for (size_t i = 0; i < deps_.stores.size(); ++i) kept += deps_.stores[i]->bytes() - backup_.copied(i);
  return kept >= deps_.catalog.total_bytes() || deps_.policy.belongs_in_ram(chunk);
}

// `given_up`: bytes on NVMe that are promised to a chunk which goes elsewhere.
void Tiers::evict(ChunkId chunk, Tier tier, uint64_t given_up) {
  if (tier == Tier::nvme) {
    if (const auto store = deps_.table.clear_store(chunk)) {
      forget(*store, chunk);
      deps_.metrics.nvme_evictions.add();
    }
    return;
  }
  const ChunkRef dropped = deps_.table.take_from_ram(chunk);
  if (!dropped) return;
  deps_.metrics.ram_evictions.add();
  deps_.metrics.ram_chunks.add(-1);
  const auto copied = backup_.release(chunk);
  if (!copied) return;
  if (has_room_for_copy(*copied, given_up)) {
    left_on_nvme(chunk, *copied);
  } else {
    forget(*copied, chunk);
  }
}

// Whether a copy that counts as one no more can stay in the store: not in room that others were promised.
bool Tiers::has_room_for_copy(size_t store, uint64_t given_up) const {
  if (!deps_.stores[store]->writable()) return true;  // they will not have it either
  const uint64_t promised = promised_nvme_.load();    // before the room, as in space()
  return nvme_room() + given_up >= promised;
}

// From RAM first: what NVMe has of the chunk as a copy counts as kept there from then on.
void Tiers::drop(ChunkId chunk) {
  MutexLock lock(placing_);
  for (const Tier tier : {Tier::ram, Tier::nvme}) {
    if (deps_.table.tier_of(chunk) != tier) continue;
    evict(chunk, tier);
    deps_.policy.dropped(chunk, tier);
  }
}

// No decision in between, or it would count the room twice.
std::optional<Block> Tiers::allocate_ram(ChunkId chunk) {
  MutexLock lock(placing_);
  auto block = ram_->allocate(length(chunk), account_);
  if (block) take_back(chunk, Tier::ram);
  return block;
}

// For what came from NVMe, or when memory of the tier was still pinned as the fetch began.
ChunkRef Tiers::moved_to_ram(ChunkId chunk, ChunkRef data) {
  auto block = allocate_ram(chunk);
  if (!block) return data;
  copy_memory(data->block.slices(0, data->length), block->slices(0, data->length));
  return ChunkRef(new ChunkData(std::move(*block), data->length, deps_.listener));
}

// No decision in between: whoever drops the chunk from RAM has to find the copy.
void Tiers::kept_in_ram(ChunkId chunk, std::optional<size_t> store, bool owed) {
  MutexLock lock(placing_);
  deps_.policy.kept(chunk, Tier::ram);
  if (store) {
    deps_.policy.dropped(chunk, Tier::nvme);
    backup_.adopt(chunk, *store);
  } else {
    backup_.added(chunk, owed);
  }
}

void Tiers::read(size_t store, ChunkId chunk, const std::vector<iovec>& pages,
                 std::function<void(Status)> done) {
  backup_.transfer_began();
  deps_.stores[store]->read(chunk_key(deps_.catalog, chunk), pages,
                            [this, done = std::move(done)](const Status& status) {
                              backup_.transfer_ended();
                              done(status);
                            });
}

void Tiers::tell_of_hang(size_t store) {
  deps_.log.warn("{}: the disk does not answer a read; until it does, what is there comes from the source",
                 deps_.stores[store]->directory());
}

void Tiers::lost_on_nvme(ChunkId chunk) {
  deps_.table.clear_store(chunk);
  deps_.policy.dropped(chunk, Tier::nvme);
}

void Tiers::forget(size_t store, ChunkId chunk) {
  deps_.stores[store]->drop(chunk_key(deps_.catalog, chunk));
}

bool Tiers::count_write(uint64_t bytes) {
  if (writing_.fetch_add(bytes) + bytes <= most_writes_) return true;
  writing_.fetch_sub(bytes);
  return false;
}

void Tiers::write(ChunkId chunk, const ChunkRef& data) {
  if (stopping_.load()) {
    writing_.fetch_sub(data->block.capacity());
    take_back(chunk, Tier::nvme);
    deps_.metrics.nvme_writes_skipped.add();
    return;
  }
  writes_.fetch_add(1);
  begin_in_turn(chunk, data, xxh3_64(data->block.slices(0, data->length)));
}

void Tiers::begin_in_turn(ChunkId chunk, const ChunkRef& data, uint64_t checksum) {
  turns_.run([this, chunk, held = data, checksum] { begin_write(chunk, held, checksum); });
}

// One at a time: room that a write makes is there for that write. The data is let go of before the write
// counts as ended: after that all this may be destroyed.
void Tiers::begin_write(ChunkId chunk, const ChunkRef& data, uint64_t checksum) {
  const uint64_t bytes = data->block.capacity();
  backup_.make_room(bytes);
  const auto store = roomiest_store(bytes);
  if (!store) {
    take_back(chunk, Tier::nvme);
    writing_.fetch_sub(bytes);
    deps_.metrics.nvme_writes_skipped.add();
    write_waiting();
    writes_.fetch_sub(1);
    return;
  }
  if (deps_.stores[*store]->grows_for(bytes)) {
    grower_->post([this, chunk, bytes, store, held = data, checksum](const std::atomic<bool>&) {
      deps_.stores[*store]->grow_for(bytes);
      begin_in_turn(chunk, held, checksum);
    });
    return;
  }
  backup_.transfer_began();
  deps_.stores[*store]->write(chunk_key(deps_.catalog, chunk), data->block.all(), data->length, checksum,
                              [this, chunk, bytes, store, held = data](const Status& status) mutable {
                                backup_.transfer_ended();
                                writing_.fetch_sub(bytes);
                                if (status) {
                                  swapped_.store(0);
                                  left_on_nvme(chunk, *store);
                                }
                                held = ChunkRef();
                                write_waiting();
                                writes_.fetch_sub(1);
                              });
  take_back(chunk, Tier::nvme);  // not before the write has its room
}

void Tiers::write_later(ChunkId chunk, const ChunkRef& data) {
  if (stopping_.load()) return take_back(chunk, Tier::nvme);
  if (swap_into_ram(chunk, data)) return;
  const uint64_t bytes = data->block.capacity();
  {
    MutexLock lock(mutex_);
    // What has waited longest is least likely to be in memory still.
    for (; !waiting_.empty() && late_.load() + bytes > most_writes_; waiting_.pop_front()) {
      late_.fetch_sub(footprint(Tier::nvme, length(waiting_.front())));
      take_back(waiting_.front(), Tier::nvme);
      deps_.metrics.nvme_writes_skipped.add();
    }
    waiting_.push_back(chunk);
    late_.fetch_add(bytes);
  }
  write_waiting();  // NVMe may have caught up before it was known that this waits
}

// Begins the writes that NVMe has time for. A write that ends at once calls this again, and finds that it is
// at work.
void Tiers::write_waiting() {
  MutexLock lock(mutex_);
  if (beginning_) return;
  beginning_ = true;
  while (!waiting_.empty()) {
    const ChunkId chunk = waiting_.front();
    const uint64_t bytes = footprint(Tier::nvme, length(chunk));
    if (!count_write(bytes)) break;
    waiting_.pop_front();
    late_.fetch_sub(bytes);
    lock.unlock();
    if (const ChunkRef data = deps_.table.only_in_transit(chunk)) {
      write(chunk, data);
    } else {
      writing_.fetch_sub(bytes);
      take_back(chunk, Tier::nvme);
      if (deps_.table.tier_of(chunk) == Tier::none) deps_.metrics.nvme_writes_skipped.add();
    }
    lock.lock();
  }
  beginning_ = false;
}

bool Tiers::may_swap() const {
  return backup_.any_copies() && swapped_.load() < account_.capacity() / kSwapDivisor;
}

// Moves what NVMe has no time for from transit memory to RAM, in the place of chunks that NVMe has copies of:
// those stay there.
bool Tiers::swap_into_ram(ChunkId chunk, const ChunkRef& data) {
  if (!may_swap() || !make_room_by_copies(chunk)) return false;
  const ChunkRef moved = moved_to_ram(chunk, data);
  if (!in_ram(moved)) take_back(chunk, Tier::ram);
  if (!in_ram(moved) || !deps_.table.move_to_ram(chunk, moved)) {
    promise(chunk, Tier::nvme);  // it waits for the disk after all
    return false;
  }
  deps_.metrics.ram_chunks.add(1);
  deps_.policy.kept(chunk, Tier::ram);
  backup_.added(chunk, true);
  return true;
}

bool Tiers::swap_place(ChunkId chunk) {
  return may_swap() && make_room_by_copies(chunk);
}

// Promises room in RAM instead of that on NVMe, which the chunks that are dropped take. No decision in
// between: it would count that room twice, and give up a copy for it.
bool Tiers::make_room_by_copies(ChunkId chunk) {
  const uint64_t bytes = footprint(Tier::ram, length(chunk));
  MutexLock lock(placing_);
  if (const uint64_t room = ram_room(); room < bytes) {
    const auto copied = backup_.oldest_copied(bytes - room);
    if (copied.empty()) return false;  // and the room on NVMe is still promised: none may be dropped into it
    for (const ChunkId victim : copied) {
      deps_.policy.dropped(victim, Tier::ram);
      evict(victim, Tier::ram, footprint(Tier::nvme, length(chunk)));
    }
  }
  swapped_.fetch_add(bytes);
  promise(chunk, Tier::ram);
  take_back(chunk, Tier::nvme);
  return true;
}

// A chunk that RAM dropped while it was copied may have been fetched and written anew before its copy is
// there: two stores have it then.
void Tiers::left_on_nvme(ChunkId chunk, size_t store) {
  if (deps_.table.set_store(chunk, store)) return forget(store, chunk);
  deps_.policy.kept(chunk, Tier::nvme);
}

// No decision in between, or a fetch would count on the same room.
std::optional<size_t> Tiers::promise_copy(uint64_t bytes) {
  MutexLock lock(placing_);
  const auto store = backup_.store_with(bytes + promised_nvme_.load());
  if (store) promised_nvme_.fetch_add(bytes);
  return store;
}

std::optional<size_t> Tiers::roomiest_store(uint64_t bytes) const {
  std::optional<size_t> best;
  uint64_t most = bytes;
  for (size_t i = 0; i < deps_.stores.size(); ++i) {
    const uint64_t available = deps_.stores[i]->available();
    if (available < most) continue;
    most = available;
    best = i;
  }
  return best;
}

// Promises are read before use: memory counts as used before its promise ends.
uint64_t Tiers::ram_room() const {
  const uint64_t promised = promised_ram_.load();
  return account_.capacity() - std::min(promised + account_.used(), account_.capacity());
}

// Of the store that has most: a chunk lies in one.
uint64_t Tiers::nvme_room() const {
  uint64_t most = 0;
  for (size_t i = 0; i < deps_.stores.size(); ++i) most = std::max(most, backup_.room(i));
  return most;
}

TierSpace Tiers::space(bool behind) const {
  TierSpace space;
  space.ram = ram_room();
  space.nvme_writable = false;
  // What would have to make room might go for nothing: nobody waits for the disk.
  space.nvme_behind = behind;
  if (behind) return space;
  // Read before the room, which is used before its promise ends: for a moment bytes may count twice, but they
  // are never missed.
  const uint64_t spoken_for = promised_nvme_.load();
  space.nvme = nvme_room();
  for (const NvmeStore* store : deps_.stores) space.nvme_writable = space.nvme_writable || store->writable();
  space.nvme -= std::min(space.nvme, spoken_for);
  return space;
}

bool Tiers::would_keep(ChunkId chunk, const TierSpace& space, const Use& use) const {
  return deps_.policy.would_keep(chunk, length(chunk), space, use);
}

void Tiers::stop() {
  stopping_.store(true);
  backup_.stop();
}

}  // namespace clairfs
