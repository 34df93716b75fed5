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
    parts_.policy.remove(removed->windows[rank]->reader().order());
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
    ahead += found->second->windows[at]->ahead();
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
      window.look_whether_idle();
      load.held += window.resident_bytes();
      ++(window.idle() ? load.idle : load.moving);
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
        if (plan->admitted) busy = window->serve(plan->kept_bytes / plan->windows.size()) || busy;
        held += window->bytes();
        continue;
      }
      load.held -= window->resident_bytes();
      busy = window->serve(reader_budget(load, window->idle())) || busy;
      busy = busy || window->is_back();  // its share is larger from now on
      load.held += window->resident_bytes();
      held += window->resident_bytes();
    }
    if (!plan->of_records) continue;
    parts_.cache.gathered();
    for (const auto& window : plan->windows) busy = window->push_and_fill() || busy;
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
      const Tracker& tracker = window->reader().tracker();
      const TrackerState state = tracker.state();
      if (state == TrackerState::waiting || state == TrackerState::following) return true;
      suspended = suspended || state == TrackerState::suspended;
      left = left || tracker.left_for_good(window->reader().index().size());
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
    for (const auto& window : plan->windows) window->leave();
    plan->let_go_of_any(UINT64_MAX);
    for (const auto& window : plan->windows) {
      parts_.policy.remove(window->reader().order());
    }
  }
}

}  // namespace clairfs
