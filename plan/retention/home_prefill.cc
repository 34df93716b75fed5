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

using SteadyTime = std::chrono::steady_clock;

}  // namespace

/// One placement being worked through.
struct WarmUp::Pass {
  const std::shared_ptr<const Placement> placement;
  const NodeId self;
};

struct WarmUp::Shared {
  Mutex mutex;  // leaf
  CondVar wake;
  bool stopping GUARDED_BY(mutex) = false;
  std::shared_ptr<const Pass> pass GUARDED_BY(mutex);  // the one in force
  WarmUpProgress progress GUARDED_BY(mutex);           // with it
  uint64_t under_way GUARDED_BY(mutex) = 0;            // chunks of it
  bool all_asked GUARDED_BY(mutex) = true;             // of it
  uint64_t into_ram GUARDED_BY(mutex) = 0;             // bytes under way, of any pass
  uint64_t in_transit GUARDED_BY(mutex) = 0;           // likewise, through transit memory
  SteadyTime::time_point not_before GUARDED_BY(mutex);

  void look_whether_finished() REQUIRES(mutex) {
    if (all_asked && under_way == 0) progress.finished = true;
  }
};

WarmUp::WarmUp(ChunkCache& cache, const Catalog& catalog)
    : cache_(cache),
      catalog_(catalog),
      most_into_ram_(TransitShares::for_chunks(catalog.chunk_size()).capacity),
      most_in_transit_(TransitShares::for_chunks(catalog.chunk_size()).prefill),
      shared_(std::make_shared<Shared>()),
      thread_("warm-up", [this] { run(); }) {}

void WarmUp::stop() {
  {
    MutexLock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WarmUp::set_placement(std::shared_ptr<const Placement> placement, NodeId self) {
  auto pass = placement ? std::make_shared<const Pass>(Pass{std::move(placement), self}) : nullptr;
  {
    MutexLock lock(shared_->mutex);
    const Pass* now = shared_->pass.get();
    if (now != nullptr && pass && now->placement == pass->placement && now->self == self) return;
    shared_->pass.swap(pass);  // the old one is destroyed outside the lock
    shared_->progress = {};
    shared_->under_way = 0;
    shared_->all_asked = shared_->pass == nullptr;
    if (shared_->pass) {
      shared_->progress.total = shared_->pass->placement->kept_bytes(self);
      shared_->progress.finished = false;
    }
  }
  shared_->wake.notify_all();
}

WarmUpProgress WarmUp::progress() const {
  MutexLock lock(shared_->mutex);
  return shared_->progress;
}

void WarmUp::run() {
  std::shared_ptr<const Pass> last;
  for (;;) {
    {
      MutexLock lock(shared_->mutex);
      while (!shared_->stopping && shared_->pass == last) shared_->wake.wait(lock);
      if (shared_->stopping) return;
      last = shared_->pass;
    }
    if (last) work_through(last);
  }
}

void WarmUp::work_through(const std::shared_ptr<const Pass>& pass) {
  uint64_t place = 0;
  const auto ask_for_all = [&](const std::vector<ChunkId>& chunks) {
    for (const ChunkId chunk : chunks) {
      if (!ask_for(pass, chunk, place++)) return false;
    }
    return true;
  };
  if (!ask_for_all(pass->placement->warm_up_order(pass->self))) return;
  if (!ask_for_all(pass->placement->copies(pass->self))) return;
  MutexLock lock(shared_->mutex);
  if (shared_->pass != pass) return;
  shared_->all_asked = true;
  shared_->look_whether_finished();
}

/// False when the pass is no longer the one in force. `place` orders the fetches of the pass.
bool WarmUp::ask_for(const std::shared_ptr<const Pass>& pass, ChunkId chunk, uint64_t place) {
  const uint32_t length = catalog_.range(chunk).length;
  if (cache_.tier_of(chunk) != Tier::none) {
    MutexLock lock(shared_->mutex);
    if (shared_->stopping || shared_->pass != pass) return false;
    shared_->progress.done += length;
    return true;
  }
  const bool into_ram = pass->placement->tier_at(pass->self, chunk) == Tier::ram;
  const uint64_t bytes = round_to_pages(length);
  if (!wait_for_room(pass, bytes, into_ram)) return false;
  cache_.acquire(chunk, {Urgency::Kind::fill, place},
                 [shared = shared_, pass, length, bytes, into_ram](const Result<AcquiredChunk>& result) {
                   MutexLock lock(shared->mutex);
                   (into_ram ? shared->into_ram : shared->in_transit) -= bytes;
                   if (!result) shared->not_before = SteadyTime::now() + kPauseAfterFailure;
                   if (shared->pass == pass) {
                     --shared->under_way;
                     if (result) {
                       shared->progress.done += length;
                     } else {
                       ++shared->progress.failed;
                     }
                     shared->look_whether_finished();
                   }
                   shared->wake.notify_all();
                 });
  return true;
}

/// Waits until `bytes` more may be under way, and counts them. False when the pass is no longer in force.
bool WarmUp::wait_for_room(const std::shared_ptr<const Pass>& pass, uint64_t bytes, bool into_ram) {
  MutexLock lock(shared_->mutex);
  uint64_t& under_way = into_ram ? shared_->into_ram : shared_->in_transit;
  const uint64_t most = into_ram ? most_into_ram_ : most_in_transit_;
  while (!shared_->stopping && shared_->pass == pass) {
    const auto not_before = shared_->not_before;  // a copy: it is looked at while the lock is open
    if (SteadyTime::now() < not_before) {
      shared_->wake.wait_until(lock, not_before);
    } else if (under_way + bytes > most) {
      shared_->wake.wait(lock);
    } else if (!into_ram && cache_.writes_are_behind()) {
      shared_->wake.wait_for(lock, kRetryPeriod);
    } else {
      under_way += bytes;
      ++shared_->under_way;
      return true;
    }
  }
  return false;
}

}  // namespace clairfs
