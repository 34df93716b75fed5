#include "plan/staging.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "plan/staging_lane.h"

namespace clairfs {
namespace {

// Samples whose chunks are known but not asked for yet: enough to go on with whenever memory comes free.
constexpr size_t kUnitsWaiting = 64;

// Samples looked at for filling in one go before everything else gets its turn: a millisecond where all of
// them are in a tier already.
constexpr uint64_t kFillsPerStep = 4096;

// How long NVMe is given to write before it is asked again whether it has caught up: some chunks.
constexpr auto kCatchUpPeriod = std::chrono::milliseconds(5);

// How long a plan that waits for room may have to wait for it to be noticed.
constexpr auto kAdmissionPeriod = std::chrono::seconds(1);

// Seconds a sample that a reader is taken to need at most, so that one that has paused is not put off for
// ever behind others.
constexpr double kSlowestReader = 0.1;

// The same of one whose pace is not known yet. The nodes of a job begin tens of milliseconds apart, and homes
// serve them all by deadline: so each gets its first batch before any gets its window full. Such deadlines
// still hold when the pace is known, so none is further off than so many seconds.
constexpr double kUnknownReader = 1e-2;
constexpr double kUnknownReaderMost = 1;

// A plan that has not moved for this long keeps only a small part of the budget while others move.
constexpr auto kIdle = std::chrono::seconds(5);
constexpr uint64_t kIdleShare = 8;  // one part in that many

}  // namespace

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
  stopped_ = true;
  // Their units know Shared, which knows them. Destroyed after the lock is let go of.
  std::map<std::string, std::shared_ptr<Lane>> lanes;
  std::vector<std::shared_ptr<Lane>> removed;
  const MutexLock lock(shared_->mutex);
  lanes.swap(shared_->lanes);
  removed.swap(shared_->removed);
}

void Staging::add(const std::shared_ptr<PlanRun>& run) {
  auto lane = std::make_shared<Lane>(run);
  const uint64_t bytes = bytes_to_keep(*run);
  lane->moved = clock_.now();
  {
    MutexLock lock(shared_->mutex);
    uint64_t kept = bytes;
    for (const auto& [name, other] : shared_->lanes) kept += name == run->name() ? 0 : other->kept_bytes;
    lane->keeps_all = kept <= options_.budget;
    lane->kept_bytes = lane->keeps_all ? bytes : 0;
    if (lane->keeps_all) lane->in_page_cache.resize(run->index().size());
    std::swap(shared_->lanes[run->name()], lane);
  }
  lane.reset();  // what it replaced lets go of memory, which calls back: not under the lock
  shared_->notify();
}

/// The page cache that all samples take together, or more than the budget. Samples that follow one another
/// in a file share the page between them.
uint64_t Staging::bytes_to_keep(const PlanRun& run) const {
  uint64_t bytes = 0;
  FileId file;
  uint64_t counted = 0;  // of `file`, up to here
  for (uint32_t sample = 0; sample < run.index().size() && bytes <= options_.budget; ++sample) {
    for (uint32_t piece = 0; piece < run.index().range_count(sample); ++piece) {
      ByteRange range = run.index().range(sample, piece);
      const uint64_t end = round_to_pages(range.offset + range.length);
      if (range.file == file && range.offset < counted) {
        if (end <= counted) continue;
        range.length -= counted - range.offset;
        range.offset = counted;
      }
      bytes += page_bytes(range);
      file = range.file;
      counted = end;
    }
  }
  return bytes;
}

void Staging::remove(const std::string& plan) {
  std::shared_ptr<Lane> removed;  // destroyed outside the lock
  {
    MutexLock lock(shared_->mutex);
    if (const auto found = shared_->lanes.find(plan); found != shared_->lanes.end()) {
      removed = std::move(found->second);
      shared_->lanes.erase(found);
    }
    if (removed) shared_->removed.push_back(removed);
  }
  if (stopped_) policy_.remove(plan);
  shared_->notify();
}

void Staging::wake() {
  shared_->notify();
}

uint64_t Staging::ahead(const std::string& plan) const {
  MutexLock lock(shared_->mutex);
  const auto found = shared_->lanes.find(plan);
  if (found == shared_->lanes.end()) return 0;
  const PlanRun& run = *found->second->run;
  const uint64_t front = run.absolute(run.tracker().front()).value_or(0);
  return std::max(found->second->staged_published.load(), front) - front;
}

std::map<std::string, std::shared_ptr<Staging::Lane>> Staging::lanes() const {
  MutexLock lock(shared_->mutex);
  return shared_->lanes;
}

void Staging::run() {
  for (;;) {
    if (!wait_for_change()) return;
    bool busy = true;
    while (busy) {
      look_again_.reset();
      busy = serve_all();
      MutexLock lock(shared_->mutex);
      if (shared_->stopping) return;
    }
  }
}

// False at the end. Nobody tells that NVMe has caught up with its writes, or that a plan has become idle.
bool Staging::wait_for_change() {
  MutexLock lock(shared_->mutex);
  while (!shared_->changed && !shared_->stopping) {
    if (!look_again_) {
      shared_->wake.wait(lock);
    } else if (shared_->wake.wait_for(lock, *look_again_) == std::cv_status::timeout) {
      break;
    }
  }
  shared_->changed = false;
  return !shared_->stopping;
}

// Page cache for what the reader has before it: all of the window but what it is left to read itself.
uint64_t Staging::held_by(const Lane& lane) {
  return lane.window_bytes - lane.oversize_bytes;
}

/// One turn of every plan; true if there is more to do at once.
bool Staging::serve_all() {
  take_leave();
  const auto current = lanes();
  const TimePoint now = clock_.now();
  uint64_t budget = options_.budget;  // of those that do not keep all
  uint64_t window = 0;                // likewise
  uint64_t moving = 0;
  uint64_t idle_lanes = 0;
  bool waiting = false;  // one that is to keep all and has just come
  const auto idle = [&](const Lane& lane) { return now - lane.moved > kIdle; };
  for (const auto& [name, lane] : current) {
    budget -= lane->kept_bytes;
    if (lane->keeps_all) {
      waiting = waiting || !lane->admitted;
      continue;
    }
    window += held_by(*lane);
    ++(idle(*lane) ? idle_lanes : moving);
  }
  const uint64_t small = moving == 0 ? 0 : budget / kIdleShare / std::max<uint64_t>(idle_lanes, 1);
  const bool has_room = window <= budget;  // for those that are to keep all
  if (waiting && !has_room) look_again_ = kAdmissionPeriod;
  bool busy = false;
  uint64_t held = 0;
  for (const auto& [name, lane] : current) {
    if (lane->keeps_all) {
      lane->admitted = lane->admitted || has_room;
      if (lane->admitted) busy = step(*lane, lane->kept_bytes) || busy;
      held += lane->window_bytes;
      continue;
    }
    if (waiting && !has_room && idle(*lane) && lane->started) {
      window -= held_by(*lane);
      restart(*lane, lane->front);
    }
    const uint64_t share = moving == 0   ? budget / idle_lanes
                           : idle(*lane) ? small
                                         : (budget - small * idle_lanes) / moving;
    // What others hold from better times they keep until it is read.
    window -= held_by(*lane);
    const uint64_t left = budget - std::min(budget, window);
    busy = step(*lane, std::min(share, left)) || busy;
    window += held_by(*lane);
    held += held_by(*lane);
  }
  metrics_.staging_bytes.set(static_cast<int64_t>(held));
  return busy;
}

// Only this thread tells the policy of a plan, so that a plan that is gone stays gone.
void Staging::take_leave() {
  std::vector<std::shared_ptr<Lane>> removed;
  {
    MutexLock lock(shared_->mutex);
    removed.swap(shared_->removed);
  }
  for (const auto& lane : removed) {
    drop_window(*lane);
    policy_.remove(lane->run->name());
  }
  if (removed.empty()) return;
  for (const auto& [name, lane] : lanes()) lane->horizon = Horizon();  // one of that name may have come since
}

/// One turn of a plan; true if there is more to do at once.
bool Staging::step(Lane& lane, uint64_t budget) {
  follow_horizon(lane);
  if (lane.horizon.empty()) return false;
  follow_reader(lane);
  skip_opened(lane);
  // The reader may have been found outside of what the planner has made so far.
  if (!lane.started || lane.staged < lane.horizon.begin()) return false;
  bool busy = drop_consumed(lane);
  const TrackerState state = lane.run->tracker().state();
  // The last samples opened are not the last ones that several workers read.
  const bool finished = state == TrackerState::finished && lane.staged >= lane.front;
  if (state == TrackerState::suspended || finished) {
    // Nothing stays pinned for it, and what was pushed in vain would hide from the tracker what is read.
    if (lane.fetched > lane.front || !lane.units.empty()) restart(lane, lane.front);
    forget_repairs(lane);
    return busy;
  }
  busy = repair(lane) || busy;
  const bool full = !fetch_ahead(lane, budget);
  busy = push_arrived(lane) || busy;
  if (full) busy = fill_tiers(lane) || busy;
  lane.staged_published = lane.staged;
  return busy;
}

void Staging::follow_horizon(Lane& lane) {
  Horizon horizon = lane.run->horizon();
  const bool same = lane.horizon.complete == horizon.complete && lane.horizon.epochs == horizon.epochs;
  if (same) return;
  const bool elsewhere = !lane.horizon.empty() && lane.staged < horizon.begin();
  // While the old positions can still be looked up.
  if (elsewhere) restart(lane, lane.staged);
  if (!lane.horizon.empty()) drop_until(lane, horizon.begin(), UINT64_MAX);
  lane.horizon = std::move(horizon);
  policy_.set_horizon(lane.run->name(), lane.horizon, lane.staged);
}

void Staging::follow_reader(Lane& lane) {
  const auto front = lane.run->absolute(lane.run->tracker().front());
  if (!front) return;  // the planner is bringing the horizon there
  const bool away = *front < lane.front || *front > lane.horizon.end() || lane.fetched < lane.horizon.begin();
  if (!lane.started || away) {
    lane.started = true;
    restart(lane, *front);
    return;
  }
  if (*front == lane.front) return;
  lane.moved = clock_.now();
  for (; lane.front < *front; ++lane.front) {
    if (lane.front >= lane.fetched || lane.front < lane.horizon.begin()) continue;
    const uint64_t bytes = page_bytes(lane.run->index(), lane.horizon.sample_at(lane.front));
    lane.window_bytes -= std::min(lane.window_bytes, bytes);
    if (bytes > 0) lane.oversize_bytes = 0;  // such a sample is the first with bytes in its window
  }
}

// Overtaken: what has been opened before it was pushed.
void Staging::skip_opened(Lane& lane) {
  const auto safe = lane.run->absolute(lane.run->tracker().position());
  // Never beyond the front as this thread knows it: both may have moved on since, even to another horizon.
  if (const uint64_t passed = safe ? std::min(*safe, lane.front) : 0; passed > lane.safe) {
    lane.safe = passed;
    leave_open_again(lane);
  }
  const uint64_t before = lane.staged;
  while (!lane.units.empty() && opened(lane, lane.units.front()->position)) {
    lane.staged = lane.units.front()->position + (lane.units.front()->last ? 1 : 0);
    pop_unit(lane);
    lane.complete = true;
  }
  lane.staged = std::max(lane.staged, lane.safe);
  lane.fetched = std::max(lane.fetched, lane.staged);
  lane.filled = std::max({lane.filled, lane.fetched, lane.front});
  if (lane.staged != before) tell_policy(lane);
}

bool Staging::opened(const Lane& lane, uint64_t position) {
  return position < lane.safe ||
         (position < lane.front && lane.run->tracker().opened(lane.run->place(position)));
}

void Staging::tell_policy(const Lane& lane) {
  // What lies before the front and is not fetched here is read by the reader itself.
  policy_.set_window(lane.run->name(), lane.staged, std::max(lane.fetched, lane.front));
}

// The reader is somewhere else: begin anew in front of it.
void Staging::restart(Lane& lane, uint64_t position) {
  drop_window(lane);
  lane.units.clear();
  lane.open_again.clear();
  lane.sentinels.clear();
  lane.repaired.clear();
  forget_repairs(lane);
  lane.asked = 0;
  lane.complete = true;
  lane.front = lane.safe = lane.staged = lane.fetched = lane.filled = lane.dropped = position;
  lane.next_sentinel = position;
  lane.window_bytes = lane.oversize_bytes = 0;
  lane.moved = clock_.now();
  lane.deadline = 0;
  tell_policy(lane);
}

// What was pushed and will not be read there leaves the page cache again.
void Staging::drop_window(const Lane& lane) {
  if (lane.keeps_all || lane.horizon.empty()) return;
  const uint64_t end = std::min(lane.staged, lane.horizon.end());
  for (uint64_t p = std::max(lane.dropped, lane.horizon.begin()); p < end; ++p) drop_pages(lane, p);
}

void Staging::drop_pages(const Lane& lane, uint64_t position) {
  const uint32_t sample = lane.horizon.sample_at(position);
  const SampleIndex& index = lane.run->index();
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.length == 0) continue;
    const uint64_t begin = page_floor(range.offset);
    tails_.drop(range.file);
    pages_.drop(range.file, begin, round_to_pages(range.offset + range.length) - begin);
  }
}

bool Staging::drop_consumed(Lane& lane) {
  const auto safe = lane.run->absolute(lane.run->tracker().position());
  return safe && drop_until(lane, *safe, kPushesPerStep);
}

/// Drops the pages of what lies before `end` and has been pushed, of at most so many samples. True if there
/// is more.
bool Staging::drop_until(Lane& lane, uint64_t end, uint64_t most) {
  end = std::min(end, lane.staged);
  if (lane.keeps_all) lane.dropped = std::max(lane.dropped, end);
  for (; lane.dropped < end; ++lane.dropped) {
    if (lane.dropped < lane.horizon.begin()) continue;
    if (most-- == 0) return true;
    // Two uses in one window have been pushed once.
    if (used_within(lane, lane.horizon.sample_at(lane.dropped), lane.dropped + 1, lane.staged)) continue;
    drop_pages(lane, lane.dropped);
    metrics_.staging_dropped.add();
  }
  return false;
}

/// False when the window is full.
bool Staging::fetch_ahead(Lane& lane, uint64_t budget) {
  lane.budget = budget;
  bool full = false;
  while (lane.fetched < lane.horizon.end() && lane.units.size() < lane.asked + kUnitsWaiting) {
    const uint64_t bytes = page_bytes(lane.run->index(), lane.horizon.sample_at(lane.fetched));
    const bool passed = lane.fetched < lane.front;  // what other workers have still to open
    // A sample larger than the budget is left to the reader, when nothing else is in the window: what lies
    // before `staged` counts as handed on.
    const bool fits =
        passed || lane.window_bytes + bytes <= budget || (bytes > budget && lane.window_bytes == 0);
    const bool unread = unread_before(lane, lane.fetched);
    // When everything stays in the page cache, staging is leaving sentinels open, once the reader has passed.
    full = !fits || (lane.keeps_all && unread);
    if (full) break;
    add_units(lane, lane.fetched, bytes > budget || unread);
    if (!passed) lane.window_bytes += bytes;
    if (!passed && bytes > budget) lane.oversize_bytes = bytes;
    ++lane.fetched;
  }
  tell_policy(lane);  // before anything is asked for: which use a fetch is for depends on it
  // What has been asked for stays pinned until it is pushed, in order: so its bytes must always fit what
  // transit memory is certain to provide.
  for (; lane.asked < lane.units.size(); ++lane.asked) {
    const auto& unit = lane.units[lane.asked];
    if (opened(lane, unit->position)) unit->chunk.reset();
    if (!unit->chunk) continue;
    if (!may_ask(*unit)) break;
    // Never before what was asked for already: pushing is in order, so a later sample that overtakes is of no
    // use and holds memory.
    lane.deadline = std::max(lane.deadline, due(lane, unit->position));
    ask(unit, lane.deadline);
  }
  return !full;
}

/// Whether the sample comes in [from, to).
bool Staging::used_within(const Lane& lane, uint32_t sample, uint64_t from, uint64_t to) {
  for (const auto& epoch : lane.horizon.epochs) {
    if (epoch->end() <= from) continue;
    const auto uses = epoch->positions->of(sample);
    const auto start = static_cast<uint32_t>(std::max(from, epoch->base) - epoch->base);
    const auto use = std::lower_bound(uses.begin(), uses.end(), start);
    if (use != uses.end()) return epoch->base + *use < to;
  }
  return false;
}

/// Whether the reader has an earlier use of the sample at `position` still before it. Its pages are there
/// then or on their way, and pushing them again would fill a sentinel that is to tell of that use.
bool Staging::unread_before(const Lane& lane, uint64_t position) {
  return used_within(lane, lane.horizon.sample_at(position), lane.front, position);
}

/// What the sample at `position` consists of: a unit for each chunk.
std::vector<std::shared_ptr<Staging::Unit>> Staging::units_of(const Lane& lane, uint64_t position) const {
  const uint32_t sample = lane.horizon.sample_at(position);
  const SampleIndex& index = lane.run->index();
  std::vector<std::shared_ptr<Unit>> units;
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.length == 0) continue;
    const uint64_t size = catalog_.chunk_size();
    const uint64_t end =
        std::min(round_to_pages(range.offset + range.length), catalog_.stamp(range.file).size);
    for (uint64_t begin = page_floor(range.offset); begin < end;) {
      auto unit = std::make_shared<Unit>(position, shared_);
      unit->chunk = ChunkId(catalog_.chunks(range.file).first.value + static_cast<uint32_t>(begin / size));
      unit->file = range.file;
      unit->begin = begin;
      unit->end = std::min(end, (begin / size + 1) * size);
      unit->last = false;
      begin = unit->end;
      units.push_back(std::move(unit));
    }
  }
  if (!units.empty()) units.back()->last = true;
  return units;
}

void Staging::add_units(Lane& lane, uint64_t position, bool skip) {
  skip = skip || (lane.keeps_all && lane.in_page_cache[lane.horizon.sample_at(position)]);
  auto units = skip ? std::vector<std::shared_ptr<Unit>>() : units_of(lane, position);
  if (units.empty()) units.push_back(std::make_shared<Unit>(position, shared_));
  std::move(units.begin(), units.end(), std::back_inserter(lane.units));
}

/// When the reader will be at `position`: the deadline of its fetches, which orders those of several plans.
uint64_t Staging::due(const Lane& lane, uint64_t position) const {
  const double rate = lane.run->tracker().status().samples_per_second;
  const auto samples = static_cast<double>(position - std::min(position, lane.front));
  const std::chrono::duration<double> left(rate > 0 ? samples * std::min(1 / rate, kSlowestReader)
                                                    : std::min(samples * kUnknownReader, kUnknownReaderMost));
  return deadline_at(clock_.now() + std::chrono::duration_cast<Duration>(left));
}

/// Whether what is in flight leaves room for the unit's chunk.
bool Staging::may_ask(const Unit& unit) const {
  const uint64_t in_flight = shared_->in_flight_bytes.load();
  return in_flight == 0 || in_flight + round_to_pages(catalog_.range(*unit.chunk).length) <= most_in_flight_;
}

void Staging::ask(const std::shared_ptr<Unit>& unit, uint64_t deadline) {
  unit->count(round_to_pages(catalog_.range(*unit->chunk).length));
  cache_.acquire(*unit->chunk, {Urgency::Kind::prefetch, deadline}, [unit](Result<AcquiredChunk> chunk) {
    if (chunk) {
      unit->data = std::move(chunk->data);
    } else {
      unit->failed = true;  // the reader will get the error itself
    }
    unit->arrived = true;
    unit->shared->notify();
  });
}

void Staging::pop_unit(Lane& lane) {
  lane.units.pop_front();
  if (lane.asked > 0) --lane.asked;
}

/// Uses the source's idle time: chunks beyond the window go into tiers that have free space. True if there is
/// more to do at once.
bool Staging::fill_tiers(Lane& lane) {
  lane.filled = std::max(lane.filled, lane.fetched);
  for (uint64_t n = 0; lane.filled < lane.horizon.end(); ++lane.filled, ++n) {
    if (n == kFillsPerStep) return true;
    const uint32_t sample = lane.horizon.sample_at(lane.filled);
    const uint64_t under_way = shared_->fill_bytes.load();
    const uint64_t most = 2 * most_in_flight_ / kFillDivisor;
    // One more at the end is what NVMe would refuse when it is just not behind.
    if (under_way > 0 && under_way + page_bytes(lane.run->index(), sample) > most) return false;
    bool room = true, behind = false;
    for_each_chunk(lane.run->index(), catalog_, sample, [&](ChunkId chunk) {
      if (cache_.tier_of(chunk) != Tier::none) return;
      const uint64_t length = catalog_.range(chunk).length;
      const TierSpace space = cache_.space();
      behind = behind || space.nvme_behind;
      room = room && FirstTouchPolicy::tier(length, space) != Tier::none && cache_.would_keep(chunk, space);
      if (!room) return;
      const uint64_t bytes = round_to_pages(length);
      shared_->fill_bytes.fetch_add(bytes);
      cache_.acquire(chunk, {Urgency::Kind::fill, lane.filled - lane.front},
                     [shared = shared_, bytes](const Result<AcquiredChunk>&) {
                       shared->fill_bytes.fetch_sub(bytes);
                       shared->notify();
                     });
    });
    if (!room) {
      if (behind) look_again_ = kCatchUpPeriod;
      return false;
    }
  }
  return false;
}

}  // namespace clairfs
