#include "plan/retention/home_prefill.h"

#include <chrono>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/memory/ram_arena.h"

namespace clairfs {
namespace {

// How often to look whether NVMe has caught up: a chunk takes it milliseconds.
constexpr auto kRetryPeriod = std::chrono::milliseconds(5);

// After a failure, before the next chunk: a source in trouble is not run through to the end of the list.
constexpr auto kPauseAfterFailure = std::chrono::milliseconds(100);

// Chunks looked at before another placement gets its turn: some microseconds.
constexpr int kChunksPerStep = 256;

std::vector<ChunkId> chunks_of(const PlacementMap& placement, NodeId self) {
  std::vector<ChunkId> chunks = placement.prefill_order(self);
  const std::vector<ChunkId> copies = placement.copies(self);
  chunks.insert(chunks.end(), copies.begin(), copies.end());
  return chunks;
}

}  // namespace

// One placement being worked through. `next` belongs to step().
struct HomePrefill::Pass {
  const std::shared_ptr<const PlacementMap> placement;
  const NodeId self;
  const std::vector<ChunkId> chunks;  // in the order in which they are asked for
  size_t next = 0;                    // of them
};

struct HomePrefill::Shared {
  Alarm alarm;
  Mutex mutex;                                   // leaf
  std::shared_ptr<Pass> pass GUARDED_BY(mutex);  // the one in force
  PrefillProgress progress GUARDED_BY(mutex);    // with it
  uint64_t under_way GUARDED_BY(mutex) = 0;      // chunks of it
  bool all_asked GUARDED_BY(mutex) = true;       // of it
  uint64_t into_ram GUARDED_BY(mutex) = 0;       // bytes under way, of any pass
  uint64_t in_transit GUARDED_BY(mutex) = 0;     // likewise, through transit memory
  bool failed GUARDED_BY(mutex) = false;         // a fetch, since the last step

  void look_whether_finished() REQUIRES(mutex) {
    if (all_asked && under_way == 0) progress.finished = true;
  }
};

HomePrefill::HomePrefill(ChunkCache& cache, const Catalog& catalog)
    : cache_(cache),
      catalog_(catalog),
      most_into_ram_(TransitShares::for_chunks(catalog.largest_chunk()).capacity),
      most_in_transit_(TransitShares::for_chunks(catalog.largest_chunk()).prefill),
      shared_(std::make_shared<Shared>()) {}

Alarm& HomePrefill::alarm() {
  return shared_->alarm;
}

void HomePrefill::set_placement(std::shared_ptr<const PlacementMap> placement, NodeId self) {
  {
    MutexLock lock(shared_->mutex);
    const Pass* now = shared_->pass.get();
    if (now != nullptr && now->placement == placement && now->self == self) return;
  }
  std::shared_ptr<Pass> pass;
  if (placement) pass = std::make_shared<Pass>(Pass{placement, self, chunks_of(*placement, self)});
  {
    MutexLock lock(shared_->mutex);
    shared_->pass.swap(pass);  // the old one is destroyed outside the lock
    shared_->progress = {};
    shared_->under_way = 0;
    shared_->all_asked = shared_->pass == nullptr;
    if (shared_->pass) {
      shared_->progress.total = placement->kept_bytes(self);
      shared_->progress.finished = false;
    }
  }
  shared_->alarm.ring();
}

PrefillProgress HomePrefill::progress() const {
  MutexLock lock(shared_->mutex);
  return shared_->progress;
}

Turn HomePrefill::step(TimePoint now) {
  std::shared_ptr<Pass> pass;
  {
    MutexLock lock(shared_->mutex);
    if (std::exchange(shared_->failed, false)) not_before_ = now + kPauseAfterFailure;
    pass = shared_->pass;
  }
  return pass ? ask(pass, now) : Turn{};
}

Turn HomePrefill::ask(const std::shared_ptr<Pass>& pass, TimePoint now) {
  for (int looked = 0; pass->next < pass->chunks.size(); ++looked, ++pass->next) {
    if (looked == kChunksPerStep) return {true, {}};
    const ChunkId chunk = pass->chunks[pass->next];
    const uint32_t length = catalog_.range(chunk).length;
    if (cache_.tier_of(chunk) != Tier::none) {
      MutexLock lock(shared_->mutex);
      if (shared_->pass == pass) shared_->progress.done += length;
      continue;
    }
    if (now < not_before_) return {false, not_before_ - now};
    const bool into_ram = pass->placement->tier_at(pass->self, chunk) == Tier::ram;
    if (!into_ram && cache_.writes_are_behind()) return {false, kRetryPeriod};
    {
      MutexLock lock(shared_->mutex);
      uint64_t& under_way = into_ram ? shared_->into_ram : shared_->in_transit;
      if (shared_->pass != pass || shared_->failed) return {true, {}};
      if (under_way + round_to_pages(length) > (into_ram ? most_into_ram_ : most_in_transit_)) return {};
      under_way += round_to_pages(length);
      ++shared_->under_way;
    }
    ask_for(pass, chunk, into_ram);
  }
  MutexLock lock(shared_->mutex);
  if (shared_->pass == pass) {
    shared_->all_asked = true;
    shared_->look_whether_finished();
  }
  return {};
}

// The place in the list orders the fetches of the pass.
void HomePrefill::ask_for(const std::shared_ptr<Pass>& pass, ChunkId chunk, bool into_ram) {
  const uint32_t length = catalog_.range(chunk).length;
  cache_.acquire(chunk, {Priority::Kind::background, pass->next},
                 [shared = shared_, pass, length, into_ram](const Result<AcquiredChunk>& result) {
                   {
                     MutexLock lock(shared->mutex);
                     (into_ram ? shared->into_ram : shared->in_transit) -= round_to_pages(length);
                     shared->failed = shared->failed || !result;
                     if (shared->pass == pass) {
                       --shared->under_way;
                       (result ? shared->progress.done : shared->progress.failed) += result ? length : 1;
                       shared->look_whether_finished();
                     }
                   }
                   shared->alarm.ring();
                 });
}

}  // namespace clairfs
