#include "plan/staging/staging.h"

#include <algorithm>
#include <utility>

#include "plan/staging/budget.h"
#include "plan/staging/staged_plan.h"

namespace clairfs {
namespace {

// How long a plan that waits for room may have to wait for it to be noticed.
constexpr auto kAdmissionPeriod = std::chrono::seconds(1);

}  // namespace

Staging::Staging(ChunkCache& cache, NextUsePolicy& policy, const Catalog& catalog, PageCache& pages,
                 Metrics& metrics, const StagingOptions& options)
    : options_(options),
      parts_{.cache = cache,
             .policy = policy,
             .catalog = catalog,
             .page_cache = pages,
             .metrics = metrics,
             .most_in_flight = TransitShares::for_chunks(catalog.largest_chunk()).staging,
             .shared = std::make_shared<StagingShared>()} {
  parts_.metrics.staging_capacity.set(static_cast<int64_t>(options_.budget));
}

void Staging::stop() {
  stopped_ = true;
  // Their units know StagingShared, which knows them. Destroyed after the lock is let go of.
  std::map<std::string, std::shared_ptr<StagedPlan>> plans;
  std::vector<std::shared_ptr<StagedPlan>> removed;
  const MutexLock lock(parts_.shared->mutex);
  plans.swap(parts_.shared->plans);
  removed.swap(parts_.shared->removed);
}

void Staging::add(const std::shared_ptr<PlanRun>& run) {
  auto plan = std::make_shared<StagedPlan>(parts_);
  for (const auto& reader : run->readers())
    plan->windows.push_back(std::make_unique<ReaderWindow>(parts_, *plan, reader, run->readers().size()));
  const uint64_t bytes = bytes_to_keep(*run);
  {
    const MutexLock lock(parts_.shared->mutex);
    uint64_t kept = bytes;
    for (const auto& [name, other] : parts_.shared->plans)
      kept += name == run->name() ? 0 : other->kept_bytes + other->common_bytes;
    plan->keeps_all = kept <= std::max(options_.budget, options_.keep);
    plan->kept_bytes = plan->keeps_all ? bytes : 0;
  }
  plan->goes_on_unknown = run->name() == kFoundPlan && run->given().epochs != 0;
  plan->of_records = run->of_records();
  plan->keeps_part = may_keep_part(*run);
  plan->fills_in_file_order = plan->of_records && options_.fill_in_file_order;
  // May take tens of milliseconds, and READs of other plans take the lock.
  plan->ledger.emplace(run->index(), parts_.catalog, plan->keeps_all);
  list_common(*plan);
  {
    const MutexLock lock(parts_.shared->mutex);
    std::swap(parts_.shared->plans[run->name()], plan);
    if (plan) parts_.shared->removed.push_back(std::move(plan));
  }
  tell_of_records();  // before anybody opens a file for it
  wake();
}

// The page cache that all samples take together, or more than may be kept. Samples that follow one another
// in a file share the page between them.
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
    MutexLock lock(parts_.shared->mutex);
    if (const auto found = parts_.shared->plans.find(plan); found != parts_.shared->plans.end()) {
      removed = std::move(found->second);
      parts_.shared->plans.erase(found);
    }
    if (removed) parts_.shared->removed.push_back(removed);
  }
  for (size_t rank = 0; stopped_ && removed && rank < removed->windows.size(); ++rank)
    parts_.policy.remove(removed->windows[rank]->reader_->order());
  wake();
}

void Staging::wake() {
  parts_.shared->alarm.ring();
}

Alarm& Staging::alarm() {
  return parts_.shared->alarm;
}

uint64_t Staging::ahead(const std::string& plan, std::optional<size_t> rank) const {
  MutexLock lock(parts_.shared->mutex);
  const auto found = parts_.shared->plans.find(plan);
  uint64_t ahead = 0;
  for (size_t at = 0; found != parts_.shared->plans.end() && at < found->second->windows.size(); ++at) {
    if (rank && rank != at) continue;
    const ReaderWindow& window = *found->second->windows[at];
    const uint64_t high_water = window.reader_->tracker().high_water();
    ahead += std::max(window.staged_published_.load(), high_water) - high_water;
  }
  return ahead;
}

std::map<std::string, std::shared_ptr<StagedPlan>> Staging::plans() const {
  MutexLock lock(parts_.shared->mutex);
  return parts_.shared->plans;
}

Turn Staging::step(TimePoint now) {
  parts_.now = now;
  parts_.look_again.reset();
  parts_.behind = false;
  const bool busy = serve_all();
  if (!parts_.behind) parts_.behind_since.reset();
  return {busy, parts_.look_again};
}

// True if there is more to do at once.
bool Staging::serve_all() {
  forget_removed_plans();
  tell_of_records();
  const auto current = plans();
  give_memory_back(current);
  uint64_t kept = 0;  // for good
  for (const auto& [name, plan] : current) kept += plan->kept_bytes + plan->common_bytes;
  parts_.metrics.staging_capacity.set(static_cast<int64_t>(options_.budget + std::min(kept, options_.keep)));
  const bool letting_go = keep_within(current, options_.keep - std::min(kept, options_.keep));
  kept -= std::min(kept, options_.keep);
  BudgetLoad load{.budget = options_.budget - std::min(options_.budget, kept)};
  bool waiting = false;  // one that is to keep all and has just come
  for (const auto& [name, plan] : current) {
    waiting = waiting || (plan->keeps_all && !plan->admitted);
    for (size_t rank = 0; !plan->keeps_all && rank < plan->windows.size(); ++rank) {
      ReaderWindow& window = *plan->windows[rank];
      window.idle_ = has_stopped(window);
      load.held += window.resident_bytes();
      ++(window.idle_ ? load.idle : load.moving);
    }
  }
  bool busy = make_room(current, waiting, load) || letting_go;
  const bool has_room = load.held <= load.budget && !letting_go;  // for those that are to keep all
  if (waiting && !has_room)
    parts_.look_again_within(kAdmissionPeriod);  // nothing rings when a reader has stopped
  uint64_t held = 0;
  for (const auto& [name, plan] : current) {
    plan->admitted = plan->admitted || has_room;
    busy = push_common(*plan) || busy;
    for (const auto& window : plan->windows) {
      if (plan->keeps_all) {
        if (plan->admitted) busy = serve(*window, plan->kept_bytes / plan->windows.size()) || busy;
        held += window->bytes_;
        continue;
      }
      load.held -= window->resident_bytes();
      busy = serve(*window, reader_budget(load, window->idle_)) || busy;
      busy = busy || (window->idle_ && window->moved_ == parts_.now);  // its share is larger from now on
      load.held += window->resident_bytes();
      held += window->resident_bytes();
    }
    if (!plan->of_records) continue;
    parts_.cache.gathered();
    for (const auto& window : plan->windows) busy = push_and_fill(*window) || busy;
  }
  parts_.metrics.staging_bytes.set(static_cast<int64_t>(held));
  return busy;
}

// Files keep the readahead that they were opened with. So a plan that is suspended is still told of: a reader
// that looks for its samples in all files first is suspended, and opens them again for records.
void Staging::tell_of_records() {
  const auto expects = [](const StagedPlan& plan) {
    bool suspended = false;
    bool left = false;
    for (const auto& window : plan.windows) {
      const Tracker& tracker = window->reader_->tracker();
      const TrackerState state = tracker.state();
      if (state == TrackerState::waiting || state == TrackerState::following) return true;
      suspended = suspended || state == TrackerState::suspended;
      left = left || tracker.left_for_good(window->reader_->index().size());
    }
    return suspended && !left;
  };
  const auto current = plans();
  RecordPlans followed = RecordPlans::none;
  for (const auto& [name, plan] : current) {
    if (!plan->of_records || !expects(*plan)) continue;
    followed = std::max(followed, name == kFoundPlan ? RecordPlans::found : RecordPlans::registered);
  }
  parts_.page_cache.expect_records(followed);
}

// Only step() tells the policy of a plan, so that a plan that is gone stays gone.
void Staging::forget_removed_plans() {
  std::vector<std::shared_ptr<StagedPlan>> removed;
  {
    MutexLock lock(parts_.shared->mutex);
    removed.swap(parts_.shared->removed);
  }
  for (const auto& plan : removed) {
    for (const auto& window : plan->windows) {
      window->drop_window(window->dropped_);
      window->forget_sentinels(0, UINT64_MAX);
    }
    plan->let_go_of_any(UINT64_MAX);
    for (const auto& window : plan->windows) {
      parts_.policy.remove(window->reader_->order());
    }
  }
}

// One turn of a reader; true if there is more to do at once. A reader of records only asks for what it needs:
// all of its plan do so, before what has arrived for one of them is pushed.
bool Staging::serve(ReaderWindow& window, uint64_t budget) {
  window.held_back_ = false;
  if (const auto left = window.reader_->tracker().look_for_unseen_end(parts_.now))
    parts_.look_again_within(*left);
  follow_timeline(window);
  if (window.timeline_.empty()) return false;
  follow_reader(window);
  skip_opened(window);
  // The reader may have been found outside of what the planner has made so far.
  if (!window.started_ || window.staged_ < window.timeline_.begin()) return false;
  bool busy = drop_consumed(window);
  const TrackerState state = window.reader_->tracker().state();
  // The last samples opened are not the last ones that several workers read.
  const bool finished = state == TrackerState::finished && window.staged_ >= window.high_water_;
  if (state == TrackerState::suspended || finished) {
    // Nothing stays pinned for it, and what was pushed in vain would hide from the tracker what is read.
    if (window.fetched_ > window.high_water_ || !window.units_.empty()) window.restart(window.high_water_);
    window.forget_repairs();
    return busy;
  }
  busy = repair(window) || busy;
  // Records that are needed soon lie side by side, also those of different readers.
  if (window.plan_.of_records) parts_.cache.gather();
  window.full_ = !issue_fetches(window, budget);
  if (window.plan_.of_records) return busy;
  return push_and_fill(window) || busy;
}

// The rest of a turn in which the reader has asked.
bool Staging::push_and_fill(ReaderWindow& window) {
  const std::optional<bool> full = std::exchange(window.full_, std::nullopt);
  if (!full) return false;
  bool busy = push_arrived(window);
  if (*full) busy = fill_tiers(window) || busy;
  window.staged_published_ = window.staged_;
  return busy;
}

void Staging::follow_timeline(ReaderWindow& window) {
  Timeline timeline = window.reader_->timeline();
  if (window.timeline_ == timeline) return;
  const bool elsewhere = !window.timeline_.empty() && window.staged_ < timeline.begin();
  // While the old positions can still be looked up.
  if (elsewhere) window.restart(window.staged_);
  if (!window.timeline_.empty()) drop_until(window, timeline.begin(), UINT64_MAX);
  window.timeline_ = std::move(timeline);
  // What has no later use in it is kept as without a plan, and not left out.
  if (window.plan_.goes_on_unknown) return;
  parts_.policy.set_timeline(window.reader_->order(), window.timeline_, window.staged_);
}

void Staging::follow_reader(ReaderWindow& window) {
  const uint64_t high_water = window.reader_->tracker().high_water();
  if (!window.timeline_.covers(high_water)) return;  // the planner is bringing the timeline there
  if (!window.started_ || high_water < window.high_water_ || window.fetched_ < window.timeline_.begin()) {
    window.started_ = true;
    window.restart(high_water);
    return;
  }
  if (high_water == window.high_water_) return;
  window.moved_ = parts_.now;
  window.high_water_ = high_water;
  for (; !window.costs_.empty() && window.costs_.front().first < high_water; window.costs_.pop_front()) {
    const uint64_t bytes = window.costs_.front().second;
    window.bytes_ -= bytes;
    if (bytes > 0) window.oversize_bytes_ = 0;  // such a sample is the first with bytes in its window
  }
}

// Overtaken: what has been opened before it was pushed.
void Staging::skip_opened(ReaderWindow& window) {
  // Never beyond the high-water mark as this turn knows it: both may have moved on since, even to another
  // timeline.
  const uint64_t safe = window.reader_->tracker().position();
  if (window.timeline_.covers(safe) && std::min(safe, window.high_water_) > window.safe_) {
    window.safe_ = std::min(safe, window.high_water_);
    window.leave_open_again();
  }
  const uint64_t before = window.staged_;
  while (!window.units_.empty() && overtaken(window)) {
    window.hand_on(window.units_.front()->position + (window.units_.front()->last ? 1 : 0));
    window.pop_unit();
    window.complete_ = true;
  }
  window.hand_on(std::max(window.staged_, window.safe_));
  window.hand_on(window.read_unseen());
  window.fetched_ = std::max(window.fetched_, window.staged_);
  window.filled_ = std::max({window.filled_, window.fetched_, window.high_water_});
  if (window.staged_ != before) window.tell_policy();
}

// Whether the first unit need not be pushed any more. A part of a stream that is being read is of use once
// it has been asked for: without it, the reader would ask for the rest of it once more. So is a record whose
// reader asks for it page by page, if it is in memory when it arrives: a push waits for a READ of the same
// page, which else may wait for the source.
bool Staging::overtaken(const ReaderWindow& window) const {
  const StagedUnit& unit = *window.units_.front();
  if (!window.opened(unit.position)) return false;
  const bool on_its_way = window.asked_ > 0 && unit.chunk;
  if (!on_its_way || unit.position < window.safe_) return true;
  const uint64_t streams = window.reader_->streams();
  if (streams > 0) return unit.position + streams < window.high_water_;
  const bool by_pages = window.plan_.of_records && window.reader_->reads_by_pages();
  return !by_pages || (unit.arrived && !parts_.cache.in_memory(unit.file, unit.begin, unit.end - unit.begin));
}

bool Staging::drop_consumed(ReaderWindow& window) {
  const uint64_t safe = window.reader_->tracker().position();
  return window.timeline_.covers(safe) && drop_until(window, safe, kPushesPerStep);
}

// Drops the pages of what lies before `end` and has been pushed, of at most so many samples. True if there
// is more.
bool Staging::drop_until(ReaderWindow& window, uint64_t end, uint64_t most) {
  end = std::min(end, window.staged_);
  const bool alone = window.plan_.windows.size() == 1;
  // A READ for this reader has filled what was left out for another.
  const auto reopen = [&](uint32_t sample) {
    for (const auto& other : window.plan_.windows) {
      if (other.get() == &window || other->timeline_.empty()) continue;
      for (auto at = other->sentinels_.lower_bound(std::max(other->high_water_, other->timeline_.begin()));
           at != other->sentinels_.end() && at->first < other->timeline_.end(); ++at) {
        if (other->timeline_.sample_at(at->first) == sample) other->leave_open(at->first);
      }
    }
  };
  for (; window.dropped_ < end; ++window.dropped_) {
    if (window.dropped_ < window.timeline_.begin()) continue;
    const uint32_t sample = window.timeline_.sample_at(window.dropped_);
    const bool elsewhere = !alone && window.staged_elsewhere(sample);
    if (elsewhere) reopen(sample);
    if (window.plan_.keeps_all && window.plan_.ledger->stays(sample)) continue;
    if (most-- == 0) return true;
    if (window.plan_.keeps_all) {
      // A reader that overtook the pushes brought its pages itself. Where samples share files, it may have
      // brought those of others, too, and passed sentinels unseen.
      if (!window.reader_->index().shares_files() && window.is_whole(window.dropped_).value_or(false))
        window.plan_.ledger->note_whole(sample);
      continue;
    }
    keep_or_let_go(window, window.dropped_);
    if (window.plan_.drop_released(sample)) parts_.metrics.staging_dropped.add();
  }
  return false;
}

}  // namespace clairfs
