#include "plan/staging.h"

#include <algorithm>
#include <utility>

namespace clairfs {
namespace {

// At most one sample in 64 is left incomplete: at 110 KB a file that costs nothing measurable, and it tells the
// reader's place well enough for windows of hundreds of samples.
constexpr uint32_t kLongestGap = 64;

// A window holds at least that many sentinels, however short it is.
constexpr uint64_t kSentinelsPerWindow = 8;

// Samples pushed in one go before everything else gets its turn: some milliseconds.
constexpr int kPushesPerStep = 32;

// Chunks fetched into tiers beyond the window at the same time: enough to use an idle source, few enough not to
// stand in the way when a reader or the window needs it.
constexpr uint64_t kFillsInFlight = 8;

// A plan that has not moved for this long keeps only a small part of the budget while others move.
constexpr auto kIdle = std::chrono::seconds(5);
constexpr uint64_t kIdleShare = 8;  // one part in that many

uint64_t page_floor(uint64_t offset) { return offset / kPageSize * kPageSize; }

}  // namespace

/// A sample whose chunks are on their way.
struct Staging::Arrival {
  std::vector<ChunkId> chunks;
  std::vector<ChunkRef> data;  // an element is written by the completion of its chunk only
  std::atomic<uint32_t> missing{0};
  std::atomic<bool> failed{false};
  bool skip = false;  // nothing to push: no bytes, too large for the budget, or in the page cache already
};

/// A plan on its way. All but `staged_published` belongs to the staging thread.
struct Staging::Lane {
  explicit Lane(std::shared_ptr<PlanRun> plan) : run(std::move(plan)) {}

  const std::shared_ptr<PlanRun> run;
  Horizon horizon;
  bool started = false;
  uint64_t front = 0;    // the reader's, as last seen
  uint64_t dropped = 0;
  uint64_t staged = 0;
  uint64_t fetched = 0;
  uint64_t filled = 0;   // tiers have been filled up to here, beyond `fetched`
  std::deque<std::shared_ptr<Arrival>> arrivals;  // [staged, fetched)
  uint64_t window_bytes = 0;                      // of [front, fetched)
  uint64_t last_sentinel = 0;
  uint32_t gap = 1;                               // between sentinels, for what is pushed now
  uint32_t widest_gap = 1;                        // among the pushed samples that the reader has not passed
  uint64_t widest_until = 0;                      // position from which on `gap` holds
  TimePoint moved{};
  bool keeps_all = false;             // the whole dataset fits the budget
  std::vector<bool> in_page_cache;    // by sample; only if keeps_all
  std::atomic<uint64_t> ahead_published{0};
};

struct Staging::Shared {
  Mutex mutex;
  CondVar wake;
  bool changed GUARDED_BY(mutex) = false;
  bool stopping GUARDED_BY(mutex) = false;
  std::map<std::string, std::shared_ptr<Lane>> lanes GUARDED_BY(mutex);
  std::atomic<uint64_t> in_flight_bytes{0};
  std::atomic<uint64_t> fills_in_flight{0};

  void notify() {
    {
      MutexLock lock(mutex);
      changed = true;
    }
    wake.notify_one();
  }
};

Staging::Staging(ChunkCache& cache, NextUsePolicy& policy, const Catalog& catalog, PageCache& pages,
                 const Clock& clock, Metrics& metrics, const StagingOptions& options)
    : cache_(cache),
      policy_(policy),
      catalog_(catalog),
      pages_(pages),
      clock_(clock),
      metrics_(metrics),
      options_(options),
      most_in_flight_(ChunkCache::transit_capacity(catalog.chunk_size()) / 2),
      shared_(std::make_shared<Shared>()),
      thread_("staging", [this] { run(); }) {
  metrics_.staging_capacity.set(static_cast<int64_t>(options_.budget));
}

void Staging::stop() {
  {
    MutexLock lock(shared_->mutex);
    shared_->stopping = true;
  }
  shared_->wake.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Staging::add(std::shared_ptr<PlanRun> run) {
  auto lane = std::make_shared<Lane>(run);
  uint64_t bytes = 0;
  for (uint32_t s = 0; s < run->index().size() && bytes <= options_.budget; ++s) bytes += run->sample_bytes(s);
  lane->keeps_all = bytes <= options_.budget;
  if (lane->keeps_all) lane->in_page_cache.resize(run->index().size());
  lane->moved = clock_.now();
  {
    MutexLock lock(shared_->mutex);
    shared_->lanes[run->name()] = std::move(lane);
  }
  shared_->notify();
}

void Staging::remove(const std::string& plan) {
  {
    MutexLock lock(shared_->mutex);
    shared_->lanes.erase(plan);
  }
  policy_.remove(plan);
  shared_->notify();
}

void Staging::wake() { shared_->notify(); }

uint64_t Staging::ahead(const std::string& plan) const {
  MutexLock lock(shared_->mutex);
  const auto found = shared_->lanes.find(plan);
  return found == shared_->lanes.end() ? 0 : found->second->ahead_published.load();
}

std::map<std::string, std::shared_ptr<Staging::Lane>> Staging::lanes() const {
  MutexLock lock(shared_->mutex);
  return shared_->lanes;
}

void Staging::run() {
  for (;;) {
    {
      MutexLock lock(shared_->mutex);
      while (!shared_->changed && !shared_->stopping) shared_->wake.wait(lock);
      if (shared_->stopping) return;
      shared_->changed = false;
    }
    bool busy = true;
    while (busy) {
      busy = false;
      const auto current = lanes();
      const TimePoint now = clock_.now();
      const auto idle = [&](const auto& entry) { return now - entry.second->moved > kIdle; };
      const auto idle_lanes = static_cast<uint64_t>(std::count_if(current.begin(), current.end(), idle));
      const uint64_t moving = current.size() - idle_lanes;
      const uint64_t small = moving == 0 ? 0 : options_.budget / kIdleShare / std::max<uint64_t>(idle_lanes, 1);
      int64_t window = 0;
      for (const auto& entry : current) {
        const uint64_t share = moving == 0     ? options_.budget / idle_lanes
                               : idle(entry) ? small
                                             : (options_.budget - small * idle_lanes) / moving;
        busy = step(*entry.second, share) || busy;
        window += static_cast<int64_t>(entry.second->window_bytes);
      }
      metrics_.staging_bytes.set(window);
      MutexLock lock(shared_->mutex);
      if (shared_->stopping) return;
    }
  }
}

/// One turn of a plan; true if there is more to do at once.
bool Staging::step(Lane& lane, uint64_t budget) {
  follow_horizon(lane);
  if (lane.horizon.empty()) return false;
  follow_reader(lane);
  bool busy = drop_consumed(lane);
  const TrackerState state = lane.run->tracker().state();
  if (state == TrackerState::suspended || state == TrackerState::finished) return busy;
  const bool full = !fetch_ahead(lane, budget);
  busy = push_arrived(lane) || busy;
  if (full) fill_tiers(lane);
  publish(lane);
  return busy;
}

void Staging::follow_horizon(Lane& lane) {
  Horizon horizon = lane.run->horizon();
  const bool same = lane.horizon.complete == horizon.complete && lane.horizon.epochs == horizon.epochs;
  if (same) return;
  lane.horizon = std::move(horizon);
  policy_.set_horizon(lane.run->name(), lane.horizon, lane.staged);
}

void Staging::follow_reader(Lane& lane) {
  const auto front = lane.run->absolute(lane.run->tracker().front());
  if (!front) return;  // the planner is bringing the horizon there
  if (!lane.started || *front < lane.front || *front >= lane.horizon.end() || lane.fetched < lane.horizon.begin()) {
    lane.started = true;
    restart(lane, *front);
    return;
  }
  if (*front != lane.front) lane.moved = clock_.now();
  for (; lane.front < *front; ++lane.front) {
    if (lane.front >= lane.fetched || lane.front < lane.horizon.begin()) continue;
    lane.window_bytes -= std::min(lane.window_bytes, lane.run->sample_bytes(lane.horizon.sample_at(lane.front)));
  }
  while (lane.staged < lane.front) {  // overtaken
    if (!lane.arrivals.empty()) lane.arrivals.pop_front();
    ++lane.staged;
  }
  lane.fetched = std::max(lane.fetched, lane.staged);
  lane.filled = std::max(lane.filled, lane.fetched);
}

// The reader is somewhere else: begin anew in front of it.
void Staging::restart(Lane& lane, uint64_t position) {
  lane.arrivals.clear();
  lane.front = lane.staged = lane.fetched = lane.filled = lane.dropped = position;
  lane.last_sentinel = position;
  lane.window_bytes = 0;
  lane.moved = clock_.now();
  policy_.set_staged(lane.run->name(), position);
}

bool Staging::drop_consumed(Lane& lane) {
  const auto safe = lane.run->absolute(lane.run->tracker().position());
  if (!safe) return false;
  const uint64_t end = std::min(*safe, lane.staged);
  if (lane.keeps_all) {
    lane.dropped = std::max(lane.dropped, end);
    return false;
  }
  for (int n = 0; lane.dropped < end; ++lane.dropped) {
    if (lane.dropped < lane.horizon.begin()) continue;
    if (++n > kPushesPerStep) return true;
    const uint32_t sample = lane.horizon.sample_at(lane.dropped);
    for (uint32_t piece = 0; piece < lane.run->index().range_count(sample); ++piece) {
      const ByteRange range = lane.run->index().range(sample, piece);
      if (range.length > 0) pages_.drop(range.file, range.offset, range.length);
    }
    metrics_.staging_dropped.add();
  }
  return false;
}

/// False when the window is full.
bool Staging::fetch_ahead(Lane& lane, uint64_t budget) {
  while (lane.fetched < lane.horizon.end()) {
    if (shared_->in_flight_bytes.load() >= most_in_flight_) return true;
    if (waits_for_reader(lane, lane.fetched)) return false;
    const uint64_t bytes = lane.run->sample_bytes(lane.horizon.sample_at(lane.fetched));
    if (bytes <= budget && lane.window_bytes + bytes > budget) return false;
    lane.arrivals.push_back(std::make_shared<Arrival>());
    lane.arrivals.back()->skip = bytes == 0 || bytes > budget;
    fetch(lane, lane.fetched);
    lane.window_bytes += bytes;
    ++lane.fetched;
  }
  return lane.fetched < lane.horizon.end();
}

/// A sample that stays in the page cache must not be staged anew while the reader has its last use still before it: the
/// sentinel that tells of that use would be gone.
bool Staging::waits_for_reader(const Lane& lane, uint64_t position) {
  if (!lane.keeps_all) return false;
  const uint32_t sample = lane.horizon.sample_at(position);
  for (const auto& epoch : lane.horizon.epochs) {
    if (epoch->end() <= lane.front) continue;
    const auto uses = epoch->positions->of(sample);
    const auto from = static_cast<uint32_t>(std::max(lane.front, epoch->base) - epoch->base);
    const auto use = std::lower_bound(uses.begin(), uses.end(), from);
    if (use != uses.end()) return epoch->base + *use < position;
  }
  return false;
}

void Staging::fetch(Lane& lane, uint64_t position) {
  const uint32_t sample = lane.horizon.sample_at(position);
  const auto arrival = lane.arrivals.back();
  if (lane.keeps_all && lane.in_page_cache[sample]) arrival->skip = true;
  if (arrival->skip) return;
  for_each_chunk(lane.run->index(), catalog_, sample, [&](ChunkId chunk) { arrival->chunks.push_back(chunk); });
  arrival->data.resize(arrival->chunks.size());
  arrival->missing = static_cast<uint32_t>(arrival->chunks.size());
  for (size_t i = 0; i < arrival->chunks.size(); ++i) {
    const uint64_t bytes = catalog_.range(arrival->chunks[i]).length;
    shared_->in_flight_bytes.fetch_add(bytes);
    cache_.acquire(arrival->chunks[i], {Urgency::Kind::prefetch, position},
                   [shared = shared_, arrival, i, bytes](Result<AcquiredChunk> chunk) {
                     if (chunk) {
                       arrival->data[i] = std::move(chunk->data);
                     } else {
                       arrival->failed = true;  // the reader will get the error itself
                     }
                     shared->in_flight_bytes.fetch_sub(bytes);
                     if (arrival->missing.fetch_sub(1) == 1) shared->notify();
                   });
  }
}

// A long window can do with fewer sentinels. The tracker must go on expecting the old, wider gaps until the reader
// has left them behind.
void Staging::choose_gap(Lane& lane) {
  const uint64_t window = lane.fetched - lane.front;
  lane.gap = static_cast<uint32_t>(std::clamp<uint64_t>(window / kSentinelsPerWindow, 1, kLongestGap));
  if (lane.gap >= lane.widest_gap || lane.front >= lane.widest_until) lane.widest_gap = lane.gap;
  if (lane.gap == lane.widest_gap) lane.widest_until = lane.staged;
}

bool Staging::push_arrived(Lane& lane) {
  choose_gap(lane);
  int pushed = 0;
  while (!lane.arrivals.empty() && lane.arrivals.front()->missing.load() == 0 && pushed < kPushesPerStep) {
    const auto arrival = std::move(lane.arrivals.front());
    lane.arrivals.pop_front();
    if (!arrival->skip && !arrival->failed) {
      push(lane, lane.staged, *arrival);
    } else if (lane.keeps_all && is_sentinel(lane, lane.staged)) {
      leave_open(lane, lane.staged);
      metrics_.staging_sentinels.add();
    }
    ++lane.staged;
    ++pushed;
  }
  if (pushed == 0) return false;
  policy_.set_staged(lane.run->name(), lane.staged);
  lane.run->tracker().set_pushed(lane.run->place(lane.staged), lane.widest_gap);
  return true;
}

// About every `gap` samples, unevenly, so that sentinels do not fall on one of several ranks alone; and the last
// sample of an epoch.
bool Staging::is_sentinel(Lane& lane, uint64_t position) {
  const PlannedEpoch* epoch = lane.horizon.epoch_at(position);
  const uint64_t half = lane.gap / 2;
  const uint64_t jitter = half == 0 ? 0 : (position * 0x9E3779B97F4A7C15ULL >> 32) % half;  // Fibonacci hashing
  const bool due = position >= lane.last_sentinel + lane.gap - jitter;
  if (!due && (epoch == nullptr || position + 1 != epoch->end())) return false;
  lane.last_sentinel = position;
  return true;
}

void Staging::push(Lane& lane, uint64_t position, const Arrival& arrival) {
  const uint32_t sample = lane.horizon.sample_at(position);
  const bool sentinel = is_sentinel(lane, position);
  const SampleIndex& index = lane.run->index();
  const uint32_t pieces = index.range_count(sample);
  bool complete = true;
  for (uint32_t piece = 0; piece < pieces; ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.length == 0) continue;
    const uint64_t begin = page_floor(range.offset);
    uint64_t end = std::min(round_to_pages(range.offset + range.length), catalog_.stamp(range.file).size);
    if (sentinel && piece + 1 == pieces) end = page_floor(end - 1);
    if (end <= begin) continue;
    const Status pushed = pages_.push(range.file, begin, memory_of(range.file, begin, end, arrival));
    if (pushed) {
      metrics_.staging_pushed_bytes.add(end - begin);
    } else {
      metrics_.staging_push_failures.add();
      complete = false;
    }
  }
  metrics_.staging_pushed.add();
  if (sentinel) {
    leave_open(lane, position);
    metrics_.staging_sentinels.add();
  }
  if (lane.keeps_all && complete) lane.in_page_cache[sample] = true;
}

// A sentinel lacks its last page, also when an earlier reader or plan has left it in the page cache.
void Staging::leave_open(Lane& lane, uint64_t position) {
  const uint32_t sample = lane.horizon.sample_at(position);
  const SampleIndex& index = lane.run->index();
  if (index.range_count(sample) == 0) return;
  const ByteRange last = index.range(sample, index.range_count(sample) - 1);
  if (last.length == 0) return;
  const uint64_t end = last.offset + last.length;
  pages_.drop(last.file, page_floor(end - 1), end - page_floor(end - 1));
}

/// The bytes [begin, end) of a file out of a sample's chunks.
std::vector<iovec> Staging::memory_of(FileId file, uint64_t begin, uint64_t end, const Arrival& arrival) const {
  std::vector<iovec> memory;
  for (size_t i = 0; i < arrival.chunks.size() && begin < end; ++i) {
    const ChunkRange range = catalog_.range(arrival.chunks[i]);
    if (range.file != file || begin < range.offset || begin >= range.offset + range.length) continue;
    const uint64_t length = std::min(end, range.offset + range.length) - begin;
    for (const iovec& part : arrival.data[i]->block.slices(begin - range.offset, length)) memory.push_back(part);
    begin += length;
  }
  return memory;
}

// Uses the source's idle time: chunks beyond the window go into tiers that have free space.
void Staging::fill_tiers(Lane& lane) {
  lane.filled = std::max(lane.filled, lane.fetched);
  for (; lane.filled < lane.horizon.end(); ++lane.filled) {
    if (shared_->fills_in_flight.load() >= kFillsInFlight) return;
    bool room = true;
    for_each_chunk(lane.run->index(), catalog_, lane.horizon.sample_at(lane.filled), [&](ChunkId chunk) {
      if (cache_.tier_of(chunk) != Tier::none) return;
      const uint64_t bytes = round_to_pages(catalog_.range(chunk).length);
      const TierSpace space = cache_.space();
      room = room && FirstTouchPolicy::tier(bytes, space) != Tier::none && policy_.would_keep(chunk, bytes, space);
      if (!room) return;
      shared_->fills_in_flight.fetch_add(1);
      cache_.acquire(chunk, {Urgency::Kind::fill, lane.filled}, [shared = shared_](const Result<AcquiredChunk>&) {
        shared->fills_in_flight.fetch_sub(1);
        shared->notify();
      });
    });
    if (!room) return;
  }
}

void Staging::publish(Lane& lane) { lane.ahead_published = lane.staged - std::min(lane.staged, lane.front); }

}  // namespace clairfs
