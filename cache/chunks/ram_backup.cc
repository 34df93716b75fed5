#include "cache/chunks/ram_backup.h"

#include <algorithm>
#include <utility>

#include <sys/resource.h>
#include <unistd.h>

#include "cache/base/checksum.h"
#include "cache/catalog/chunk_key.h"
#include "cache/chunks/tier_policy.h"
#include "cache/io/memory.h"
#include "cache/memory/ram_arena.h"

namespace clairfs {
namespace {

// The stores are idle when nothing else was under way for so long: longer than the pauses between the
// transfers of one reader, short enough that the gaps between batches are used.
constexpr auto kQuiet = std::chrono::milliseconds(10);

// While they are not idle, a pause follows each copy that is so many times as long: 3 % of the time.
constexpr int kBusyPause = 32;

// After NVMe was full, and something new wants a copy: chunks that replace each other at thousands a second
// wake the thread no oftener.
constexpr auto kFullPause = std::chrono::seconds(1);

// Copying and checksums yield to readers and fetches: against one busy thread of theirs, the kernel gives a
// thread of this niceness a tenth of the time. More would starve the end's copies on a busy machine.
constexpr int kNiceness = 10;

}  // namespace

Duration BackupPace::wait(TimePoint now, uint64_t begun, uint64_t under_way, bool owed) {
  if (begun != seen_ || under_way > 0) {
    seen_ = begun;
    quiet_from_ = now + kQuiet;
  }
  if (owed) return Duration::zero();
  return std::max(std::min(quiet_from_, next_when_busy_) - now, Duration::zero());
}

void BackupPace::copied(TimePoint began, TimePoint ended) {
  next_when_busy_ = ended + kBusyPause * (ended - began);
}

RamBackup::RamBackup(const Catalog& catalog, const std::vector<NvmeStore*>& stores, Keeper& keeper,
                     const std::atomic<uint64_t>& promised, Metrics& metrics)
    : catalog_(catalog),
      stores_(stores),
      keeper_(keeper),
      promised_(promised),
      metrics_(metrics),
      copied_(stores.size()) {
  if (stores.empty()) return;
  auto buffer = Mapping::anonymous(round_to_pages(catalog.largest_chunk()));
  if (!buffer) return;
  buffer_ = std::move(*buffer);
  states_.resize(catalog.chunk_count());
}

RamBackup::~RamBackup() {
  stop();
  {
    MutexLock lock(mutex_);
    while (in_flight_ || running_) wake_.wait(lock);
  }
  while (take_copy()) {
  }
}

uint64_t RamBackup::bytes_of(ChunkId chunk) const {
  return round_to_pages(catalog_.range(chunk).length);
}

// Which chunks wait, and which have copies.

void RamBackup::added(ChunkId chunk, bool owed) {
  MutexLock lock(mutex_);
  if (states_.empty() || stopping_) return;
  if (owed) ++owed_;
  State& state = states_[chunk.index()];
  state.left = false;
  if (state.waiting || state.writing || state.store != 0) return;
  state.waiting = true;
  queue_.push_back(chunk);
  if (!std::exchange(news_, true)) wake_.notify_all();
}

uint64_t RamBackup::copies_owed() const {
  MutexLock lock(mutex_);
  return owed_;
}

void RamBackup::adopt(ChunkId chunk, size_t store) {
  MutexLock lock(mutex_);
  if (!states_.empty()) list_copy(chunk, store);
}

void RamBackup::list_copy(ChunkId chunk, size_t store) {
  State& state = states_[chunk.index()];
  state.store = static_cast<uint8_t>(store + 1);
  if (!state.listed) copies_.push_back(chunk);
  state.listed = true;
  count(store, chunk, 1);
}

std::optional<size_t> RamBackup::release(ChunkId chunk) {
  MutexLock lock(mutex_);
  if (states_.empty()) return std::nullopt;
  State& state = states_[chunk.index()];
  state.left = state.writing;
  if (state.store == 0) return std::nullopt;
  const size_t store = std::exchange(state.store, uint8_t{0}) - size_t{1};
  count(store, chunk, -1);
  return store;
}

std::optional<ChunkId> RamBackup::unlist_oldest() {
  while (!copies_.empty()) {
    const ChunkId chunk = copies_.front();
    copies_.pop_front();
    State& state = states_[chunk.index()];
    state.listed = false;
    if (state.store != 0) return chunk;
  }
  return std::nullopt;
}

std::vector<ChunkId> RamBackup::oldest_copied(uint64_t bytes) {
  MutexLock lock(mutex_);
  std::vector<ChunkId> oldest;
  uint64_t found = 0;
  while (found < bytes) {
    const auto chunk = unlist_oldest();
    if (!chunk) break;
    oldest.push_back(*chunk);
    found += footprint(Tier::ram, catalog_.range(*chunk).length);
  }
  if (found >= bytes) return oldest;
  for (const ChunkId chunk : oldest) {  // all that there are: they stay copies
    states_[chunk.index()].listed = true;
    copies_.push_back(chunk);
  }
  return {};
}

bool RamBackup::any_copies() const {
  return std::any_of(copied_.begin(), copied_.end(), [](const auto& bytes) { return bytes.load() > 0; });
}

// The oldest of the copies, which does not count as one any more.
std::optional<RamBackup::Copy> RamBackup::take_copy() {
  MutexLock lock(mutex_);
  const auto chunk = unlist_oldest();
  if (!chunk) return std::nullopt;
  const size_t store = std::exchange(states_[chunk->index()].store, uint8_t{0}) - size_t{1};
  count(store, *chunk, -1);
  return Copy{*chunk, store};
}

void RamBackup::count(size_t store, ChunkId chunk, int64_t sign) {
  const auto bytes = sign * static_cast<int64_t>(bytes_of(chunk));
  copied_[store].fetch_add(static_cast<uint64_t>(bytes));
  metrics_.nvme_copies.add(sign);
  metrics_.nvme_copy_bytes.add(bytes);
}

// Room.

uint64_t RamBackup::room(size_t store) const {
  const uint64_t copied = copied_[store].load();
  if (copied > 0 && !stores_[store]->writable()) return 0;
  return stores_[store]->available() + copied;
}

std::optional<size_t> RamBackup::store_with(uint64_t bytes) const {
  for (size_t i = 0; i < stores_.size(); ++i) {
    if (stores_[i]->available() >= bytes) return i;
  }
  return std::nullopt;
}

void RamBackup::make_room(uint64_t bytes) {
  if (store_with(bytes)) return;
  bool helps = false;
  for (size_t i = 0; i < stores_.size(); ++i) helps = helps || room(i) >= bytes;
  while (helps && !store_with(bytes)) {
    const auto copy = take_copy();
    if (!copy) return;
    stores_[copy->store]->drop(chunk_key(catalog_, copy->chunk));
    added(copy->chunk);
  }
}

// Copying.

RamBackup::Outcome RamBackup::copy_next() {
  ChunkId chunk;
  {
    MutexLock lock(mutex_);
    news_ = false;
    if (in_flight_ || queue_.empty() || stopping_) return Outcome::nothing;
    chunk = queue_.front();
    queue_.pop_front();
    owed_ = queue_.empty() ? 0 : owed_ - std::min<uint64_t>(owed_, 1);
    State& state = states_[chunk.index()];
    state.waiting = false;
    state.writing = true;
    in_flight_ = true;
  }
  ChunkRef data = keeper_.only_in_ram(chunk);
  const bool here = bool(data);
  const uint64_t bytes = bytes_of(chunk);
  uint64_t checksum = 0;
  const uint64_t promised = promised_.load();
  bool busy = promised > 0;
  std::optional<size_t> store = here ? store_with(bytes + promised) : std::nullopt;
  if (store) {
    checksum = fill_buffer(data);
    data = ChunkRef();
    store = keeper_.promise_copy(bytes);
    busy = true;  // without a store: fetches were promised more, in the time that this took
  }
  if (!store) {
    MutexLock lock(mutex_);
    State& state = states_[chunk.index()];
    const bool left = state.left || !here;
    state.writing = state.left = in_flight_ = false;
    news_ = news_ || left || busy;
    wake_.notify_all();
    if (left) return Outcome::skipped;
    state.waiting = true;
    queue_.push_back(chunk);  // another may be smaller
    return busy ? Outcome::busy : Outcome::full;
  }
  write(chunk, checksum, *store);
  keeper_.take_back_copy(bytes);  // not before the write has its room
  return Outcome::copied;
}

// The memory of the RAM tier does not lie in pages, and must not be pinned while a device takes its time.
// Gives the checksum.
uint64_t RamBackup::fill_buffer(const ChunkRef& data) {
  const std::vector<iovec> bytes{{buffer_.data(), data->length}};
  copy_memory(data->block.slices(0, data->length), bytes);
  return xxh3_64(bytes);
}

void RamBackup::write(ChunkId chunk, uint64_t checksum, size_t store) {
  const uint32_t length = catalog_.range(chunk).length;
  const std::vector<iovec> pages{{buffer_.data(), round_to_pages(length)}};
  // And for the largest chunk beside it: else a write of the tiers, which looked a moment ago, may find that
  // the copy has the last run.
  stores_[store]->grow_for(round_to_pages(length) + round_to_pages(catalog_.largest_chunk()));
  stores_[store]->write(chunk_key(catalog_, chunk), pages, length, checksum,
                        [this, chunk, store](const Status& status) { written(chunk, store, bool(status)); });
}

void RamBackup::written(ChunkId chunk, size_t store, bool success) {
  bool left = false;
  {
    MutexLock lock(mutex_);
    State& state = states_[chunk.index()];
    left = state.left;
    state.writing = state.left = false;
    if (success && !left) list_copy(chunk, store);
  }
  if (success) keeper_.copy_written();
  if (success && left) keeper_.left_on_nvme(chunk, store);
  MutexLock lock(mutex_);
  in_flight_ = false;
  news_ = news_ || !queue_.empty();
  wake_.notify_all();  // with the lock held: after that this may be destroyed
}

// The thread.

void RamBackup::start() {
  MutexLock lock(mutex_);
  if (states_.empty() || stopping_) return;
  thread_ = NamedThread("ram-backup", [this] { run(); });  // which waits for the lock
  running_ = true;
}

void RamBackup::run() {
  const auto self = static_cast<id_t>(::gettid());
  ::setpriority(PRIO_PROCESS, self, std::max(::getpriority(PRIO_PROCESS, self), kNiceness));
  BackupPace pace;
  bool full = false;
  while (await_turn(pace, full)) {
    const TimePoint began = clock_.now();
    const Outcome outcome = copy_next();
    MutexLock lock(mutex_);
    while (in_flight_ && !stopping_) wake_.wait(lock);
    if (outcome == Outcome::copied) pace.copied(began, clock_.now());
    full = outcome == Outcome::busy || outcome == Outcome::full;
    if (to_flush_ > 0 && --to_flush_ == 0) wake_.notify_all();
  }
  MutexLock lock(mutex_);
  running_ = false;
  wake_.notify_all();
}

// Returns when the next copy may begin; false when there will be none.
bool RamBackup::await_turn(BackupPace& pace, bool full) {
  MutexLock lock(mutex_);
  for (;;) {
    while (!stopping_ && to_flush_ == 0 && !news_) wake_.wait(lock);
    if (stopping_) return false;
    if (to_flush_ > 0) return true;
    const Duration pause = std::exchange(full, false)
                               ? kFullPause
                               : pace.wait(clock_.now(), begun_.load(), under_way_.load(), owed_ > 0);
    if (pause <= Duration::zero()) return true;
    const TimePoint until = clock_.now() + pause;
    while (!stopping_ && to_flush_ == 0 && clock_.now() < until) wake_.wait_until(lock, until);
  }
}

bool RamBackup::flush(Duration patience) {
  const TimePoint deadline = clock_.now() + patience;
  MutexLock lock(mutex_);
  to_flush_ = queue_.size() + 1;  // the thread may be about to count a copy that it has made already
  wake_.notify_all();
  while (running_ && to_flush_ > 0) {
    if (clock_.now() >= deadline) return false;
    wake_.wait_until(lock, deadline);
  }
  return true;
}

void RamBackup::stop() {
  MutexLock lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

bool RamBackup::stopped() const {
  MutexLock lock(mutex_);
  return !running_ && !in_flight_;
}

}  // namespace clairfs
