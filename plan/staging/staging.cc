#include "plan/staging/staging.h"

#include <algorithm>
#include <utility>

#include "plan/staging/budget.h"
#include "plan/staging/lane.h"

namespace clairfs {
namespace {

// How long a plan that waits for room may have to wait for it to be noticed.
constexpr auto kAdmissionPeriod = std::chrono::seconds(1);

// A plan that has not moved for this long keeps only a small part of the budget while others move.
constexpr auto kIdle = std::chrono::seconds(5);

}  // namespace

Staging::Staging(ChunkCache& cache, NextUsePolicy& policy, const Catalog& catalog, PageCache& pages,
                 Metrics& metrics, const StagingOptions& options)
    : cache_(cache),
      policy_(policy),
      catalog_(catalog),
      pages_(pages),
      metrics_(metrics),
      options_(options),
      most_in_flight_(TransitShares::for_chunks(catalog.largest_chunk()).staging),
      shared_(std::make_shared<Shared>()) {
  metrics_.staging_capacity.set(static_cast<int64_t>(options_.budget));
}

void Staging::stop() {
  stopped_ = true;
  // Their units know Shared, which knows them. Destroyed after the lock is let go of.
  std::map<std::string, std::shared_ptr<StagedPlan>> plans;
  std::vector<std::shared_ptr<StagedPlan>> removed;
  const MutexLock lock(shared_->mutex);
  plans.swap(shared_->plans);
  removed.swap(shared_->removed);
}

void Staging::add(const std::shared_ptr<PlanRun>& run) {
  auto plan = std::make_shared<StagedPlan>();
  for (const auto& reader : run->readers())
    plan->lanes.push_back(std::make_unique<Lane>(*plan, reader, run->readers().size()));
  const uint64_t bytes = bytes_to_keep(*run);
  {
    MutexLock lock(shared_->mutex);
    uint64_t kept = bytes;
    for (const auto& [name, other] : shared_->plans)
      kept += name == run->name() ? 0 : other->kept_bytes + other->common_bytes;
    plan->keeps_all = kept <= std::max(options_.budget, options_.keep);
    plan->kept_bytes = plan->keeps_all ? bytes : 0;
    plan->goes_on_unknown = run->name() == kFoundPlan && run->given().epochs != 0;
    plan->ledger.emplace(run->index(), catalog_, plan->keeps_all);
    plan->of_records = run->index().shares_files() && !run->index().is_stream();
    plan->fills_in_file_order = plan->of_records && options_.fill_in_file_order;
    list_common(*plan);
    std::swap(shared_->plans[run->name()], plan);
    if (plan) shared_->removed.push_back(std::move(plan));
  }
  tell_of_records();  // before anybody opens a file for it
  wake();
}

/// The page cache that all samples take together, or more than may be kept. Samples that follow one another
/// in a file share the page between them.
uint64_t Staging::bytes_to_keep(const PlanRun& run) const {
  const uint64_t most = std::max(options_.budget, options_.keep);
  uint64_t bytes = 0;
  PageRange before{};
  for (uint32_t sample = 0; sample < run.index().size() && bytes <= most; ++sample) {
    for (uint32_t piece = 0; piece < run.index().range_count(sample); ++piece) {
      const auto [file, offset, length] = run.index().range(sample, piece);
      if (length == 0) continue;
      const PageRange pages{file, page_floor(offset),
                            round_to_pages(run.index().read_end({file, offset, length}))};
      const bool shares = file == before.file && pages.begin >= before.begin && pages.begin < before.end;
      bytes += pages.end - (shares ? std::min(before.end, pages.end) : pages.begin);
      before = pages;
    }
  }
  return bytes;
}

void Staging::remove(const std::string& plan) {
  std::shared_ptr<StagedPlan> removed;  // destroyed outside the lock
  {
    MutexLock lock(shared_->mutex);
    if (const auto found = shared_->plans.find(plan); found != shared_->plans.end()) {
      removed = std::move(found->second);
      shared_->plans.erase(found);
    }
    if (removed) shared_->removed.push_back(removed);
  }
  for (size_t rank = 0; stopped_ && removed && rank < removed->lanes.size(); ++rank)
    policy_.remove(removed->lanes[rank]->reader->order());
  wake();
}

void Staging::wake() {
  shared_->alarm.ring();
}

Alarm& Staging::alarm() {
  return shared_->alarm;
}

uint64_t Staging::ahead(const std::string& plan, std::optional<size_t> rank) const {
  MutexLock lock(shared_->mutex);
  const auto found = shared_->plans.find(plan);
  uint64_t ahead = 0;
  for (size_t at = 0; found != shared_->plans.end() && at < found->second->lanes.size(); ++at) {
    if (rank && rank != at) continue;
    const Lane& lane = *found->second->lanes[at];
    const uint64_t front = lane.reader->tracker().front();
    ahead += std::max(lane.staged_published.load(), front) - front;
  }
  return ahead;
}

std::map<std::string, std::shared_ptr<Staging::StagedPlan>> Staging::plans() const {
  MutexLock lock(shared_->mutex);
  return shared_->plans;
}

Turn Staging::step(TimePoint now) {
  now_ = now;
  look_again_.reset();
  const bool busy = serve_all();
  return {busy, look_again_};
}

// Page cache for what the reader has before it: all of the window but what it is left to read itself.
uint64_t Staging::resident_bytes(const Lane& lane) {
  return lane.window_bytes - lane.oversize_bytes;
}

/// True if there is more to do at once.
bool Staging::serve_all() {
  forget_removed_plans();
  tell_of_records();
  const auto current = plans();
  const auto idle = [&](Lane& lane) {
    if (!lane.moved) lane.moved = now_;
    return now_ - *lane.moved > kIdle;
  };
  uint64_t kept = 0;  // for good
  for (const auto& [name, plan] : current) kept += plan->kept_bytes + plan->common_bytes;
  metrics_.staging_capacity.set(static_cast<int64_t>(options_.budget + std::min(kept, options_.keep)));
  const bool letting_go = keep_within(current, options_.keep - std::min(kept, options_.keep));
  kept -= std::min(kept, options_.keep);
  BudgetLoad load{.budget = options_.budget - std::min(options_.budget, kept)};
  bool waiting = false;  // one that is to keep all and has just come
  for (const auto& [name, plan] : current) {
    waiting = waiting || (plan->keeps_all && !plan->admitted);
    for (size_t rank = 0; !plan->keeps_all && rank < plan->lanes.size(); ++rank) {
      load.held += resident_bytes(*plan->lanes[rank]);
      ++(idle(*plan->lanes[rank]) ? load.idle : load.moving);
    }
  }
  const bool has_room = load.held <= load.budget && !letting_go;  // for those that are to keep all
  const bool make_room = waiting && !has_room;
  if (make_room) look_again_ = kAdmissionPeriod;  // nothing rings when a plan has become idle
  bool busy = letting_go;
  uint64_t held = 0;
  for (const auto& [name, plan] : current) {
    plan->admitted = plan->admitted || has_room;
    busy = push_common(*plan) || busy;
    for (const auto& lane : plan->lanes) {
      if (plan->keeps_all) {
        if (plan->admitted) busy = serve(*lane, plan->kept_bytes / plan->lanes.size()) || busy;
        held += lane->window_bytes;
        continue;
      }
      load.held -= resident_bytes(*lane);
      if (make_room && idle(*lane) && lane->started) restart(*lane, lane->front);
      const uint64_t budget = reader_budget(load, idle(*lane));
      busy = serve(*lane, budget) || busy;
      load.held += resident_bytes(*lane);
      held += resident_bytes(*lane);
    }
  }
  metrics_.staging_bytes.set(static_cast<int64_t>(held));
  return busy;
}

void Staging::tell_of_records() {
  bool records = false;
  for (const auto& [name, plan] : plans()) {
    records = records ||
              (plan->of_records && std::any_of(plan->lanes.begin(), plan->lanes.end(), [](const auto& lane) {
                 const TrackerState state = lane->reader->tracker().state();
                 return state == TrackerState::waiting || state == TrackerState::following;
               }));
  }
  pages_.expect_records(records);
}

// Only step() tells the policy of a plan, so that a plan that is gone stays gone.
void Staging::forget_removed_plans() {
  std::vector<std::shared_ptr<StagedPlan>> removed;
  {
    MutexLock lock(shared_->mutex);
    removed.swap(shared_->removed);
  }
  for (const auto& plan : removed) {
    for (const auto& lane : plan->lanes) lane->fetched = lane->staged;  // nothing more is to be staged
    for (const auto& lane : plan->lanes) {
      drop_window(*lane);
      forget_sentinels(*lane, UINT64_MAX);
    }
    let_go_of_any(*plan, UINT64_MAX);
    for (const auto& lane : plan->lanes) {
      policy_.remove(lane->reader->order());
    }
  }
}

/// One turn of a reader; true if there is more to do at once.
bool Staging::serve(Lane& lane, uint64_t budget) {
  follow_horizon(lane);
  if (lane.horizon.empty()) return false;
  follow_reader(lane);
  skip_opened(lane);
  // The reader may have been found outside of what the planner has made so far.
  if (!lane.started || lane.staged < lane.horizon.begin()) return false;
  bool busy = drop_consumed(lane);
  const TrackerState state = lane.reader->tracker().state();
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
  Horizon horizon = lane.reader->horizon();
  const bool same = lane.horizon.complete == horizon.complete && lane.horizon.epochs == horizon.epochs;
  if (same) return;
  const bool elsewhere = !lane.horizon.empty() && lane.staged < horizon.begin();
  // While the old positions can still be looked up.
  if (elsewhere) restart(lane, lane.staged);
  if (!lane.horizon.empty()) drop_until(lane, horizon.begin(), UINT64_MAX);
  lane.horizon = std::move(horizon);
  // What has no later use in it is kept as without a plan, and not left out.
  if (lane.plan->goes_on_unknown) return;
  policy_.set_horizon(lane.reader->order(), lane.horizon, lane.staged);
}

void Staging::follow_reader(Lane& lane) {
  const uint64_t front = lane.reader->tracker().front();
  if (!lane.horizon.covers(front)) return;  // the planner is bringing the horizon there
  if (!lane.started || front < lane.front || lane.fetched < lane.horizon.begin()) {
    lane.started = true;
    restart(lane, front);
    return;
  }
  if (front == lane.front) return;
  lane.moved = now_;
  lane.front = front;
  for (; !lane.costs.empty() && lane.costs.front().first < front; lane.costs.pop_front()) {
    const uint64_t bytes = lane.costs.front().second;
    lane.window_bytes -= bytes;
    if (bytes > 0) lane.oversize_bytes = 0;  // such a sample is the first with bytes in its window
  }
}

// Overtaken: what has been opened before it was pushed.
void Staging::skip_opened(Lane& lane) {
  // Never beyond the front as this turn knows it: both may have moved on since, even to another horizon.
  const uint64_t safe = lane.reader->tracker().position();
  if (lane.horizon.covers(safe) && std::min(safe, lane.front) > lane.safe) {
    lane.safe = std::min(safe, lane.front);
    leave_open_again(lane);
  }
  const uint64_t before = lane.staged;
  while (!lane.units.empty() && overtaken(lane)) {
    hand_on(lane, lane.units.front()->position + (lane.units.front()->last ? 1 : 0));
    pop_unit(lane);
    lane.complete = true;
  }
  hand_on(lane, std::max(lane.staged, lane.safe));
  lane.fetched = std::max(lane.fetched, lane.staged);
  lane.filled = std::max({lane.filled, lane.fetched, lane.front});
  if (lane.staged != before) tell_policy(lane);
}

bool Staging::opened(const Lane& lane, uint64_t position) {
  return position < lane.safe || (position < lane.front && lane.reader->tracker().opened(position));
}

/// Whether the first unit need not be pushed any more. A part of a stream that is being read is of use once
/// it has been asked for: without it, the reader would ask for the rest of it once more.
bool Staging::overtaken(const Lane& lane) {
  const uint64_t position = lane.units.front()->position;
  const bool on_its_way = lane.asked > 0 && lane.units.front()->chunk;
  const bool being_read = position >= lane.safe && position + lane.reader->streams() >= lane.front;
  return opened(lane, position) && !(on_its_way && being_read && lane.reader->streams() > 0);
}

/// Everything before `position` has been pushed, or is the reader's.
void Staging::hand_on(Lane& lane, uint64_t position) {
  for (; lane.staged < position; ++lane.staged) {
    if (lane.plan->keeps_all || lane.staged < lane.horizon.begin()) continue;
    lane.plan->ledger->hold(lane.horizon.sample_at(lane.staged));
  }
}

void Staging::tell_policy(const Lane& lane) {
  policy_.set_staged(lane.reader->order(), lane.staged);
}

// The reader is somewhere else: begin anew in front of it.
void Staging::restart(Lane& lane, uint64_t position) {
  lane.fetched = lane.staged;  // what was to be staged is not any more
  drop_window(lane);
  lane.units.clear();
  lane.newest.reset();
  lane.open_again.clear();
  forget_sentinels(lane, UINT64_MAX);
  lane.repaired.clear();
  forget_repairs(lane);
  lane.asked = 0;
  lane.asked_bytes = 0;
  lane.complete = true;
  lane.front = lane.safe = lane.staged = lane.fetched = lane.filled = lane.dropped = position;
  lane.records_filled = 0;
  lane.chooser.restart(position);
  lane.costs.clear();
  lane.window_bytes = lane.oversize_bytes = 0;
  lane.kept_run = lane.longest_kept_run = 0;
  lane.moved = now_;
  lane.deadline = 0;
  tell_policy(lane);
}

// What was pushed and will not be read there leaves the page cache again.
void Staging::drop_window(const Lane& lane) {
  if (lane.plan->keeps_all || lane.horizon.empty()) return;
  const uint64_t end = std::min(lane.staged, lane.horizon.end());
  for (uint64_t p = std::max(lane.dropped, lane.horizon.begin()); p < end; ++p) {
    const uint32_t sample = lane.horizon.sample_at(p);
    drop_released(*lane.plan, sample);
  }
}

/// One use of the sample is over; false if all its pages are still of use. They are where a use is to be
/// staged that found them there: its turn to hold them has not come.
bool Staging::drop_released(StagedPlan& plan, uint32_t sample) {
  const std::vector<PageRange> free = plan.ledger->release(sample);
  const bool counted_on = std::any_of(plan.lanes.begin(), plan.lanes.end(), [&](const auto& lane) {
    return lane->horizon.uses_within(sample, lane->staged, lane->fetched);
  });
  if (counted_on) return false;
  for (const PageRange& range : free) {
    sentinels_.close(range);
    pages_.drop(range.file, range.begin, round_to_pages(range.end) - range.begin);
  }
  return !free.empty();
}

bool Staging::drop_consumed(Lane& lane) {
  const uint64_t safe = lane.reader->tracker().position();
  return lane.horizon.covers(safe) && drop_until(lane, safe, kPushesPerStep);
}

/// Drops the pages of what lies before `end` and has been pushed, of at most so many samples. True if there
/// is more.
bool Staging::drop_until(Lane& lane, uint64_t end, uint64_t most) {
  end = std::min(end, lane.staged);
  const bool alone = lane.plan->lanes.size() == 1;
  // A READ for this reader has filled what was left out for another.
  const auto reopen = [&](uint32_t sample) {
    for (const auto& other : lane.plan->lanes) {
      if (other.get() == &lane || other->horizon.empty()) continue;
      for (auto at = other->sentinels.lower_bound(std::max(other->front, other->horizon.begin()));
           at != other->sentinels.end() && at->first < other->horizon.end(); ++at) {
        if (other->horizon.sample_at(at->first) == sample) leave_open(*other, at->first);
      }
    }
  };
  for (; lane.dropped < end; ++lane.dropped) {
    if (lane.dropped < lane.horizon.begin()) continue;
    const uint32_t sample = lane.horizon.sample_at(lane.dropped);
    const bool elsewhere = !alone && staged_elsewhere(lane, sample);
    if (elsewhere) reopen(sample);
    if (lane.plan->keeps_all && lane.plan->ledger->stays(sample)) continue;
    if (most-- == 0) return true;
    if (lane.plan->keeps_all) {
      // A reader that overtook the pushes brought its pages itself. Where samples share files, it may have
      // brought those of others, too, and passed sentinels unseen.
      if (!lane.reader->index().shares_files() && is_whole(lane, lane.dropped).value_or(false))
        lane.plan->ledger->note_whole(sample);
      continue;
    }
    keep_or_let_go(lane, lane.dropped);
    if (drop_released(*lane.plan, sample)) metrics_.staging_dropped.add();
  }
  return false;
}

}  // namespace clairfs
