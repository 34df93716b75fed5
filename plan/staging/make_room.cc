// Readers that have stopped make room for others.
//
// A full window holds its bytes until they are read. Its reader may have stopped, though: a training that
// waits for its validation, or a job that has ended before its plan. Such a window gives up what its reader
// would come to last. For readers that go on and lack a part of their share it does so down to its own, which
// is small then, and no sooner than they can fetch. For a plan that is to stay in the page cache as a whole
// it gives up as much as that takes.
//
// A reader takes nothing from others before it is followed for certain (Tracker::is_followed()). Plans are
// set long before they are read, and one access in the order of a plan may be a look at its first sample, or
// belong to the reader of another plan. While a reader has no room all of its reads are seen, so a few
// samples are enough.
//
// The readers of a plan wait for each other, as ranks do for their gradients: after a pause all of them go
// on, and one is seen first. It is not to take from those that are seen a moment later. So a plan gives up
// room for readers that go on when all of its own have stopped.
//
// What is left of the window is what its reader needs first, and the sentinels in it tell where the reader
// is. It does not grow while others move. As soon as the reader moves its share is that of any other that
// does, and those that have stopped by then make room for it.
//
// Between two sentinels a reader goes unseen, so it may be beyond what is left. The tracker goes on taking
// what was given up for pushed (announce()), and so expects the reader as far ahead as before. When it is
// seen, what lies behind it is not pushed again (read_unseen()).
//
// A slow reader is seen seldom: at ten samples a second and one sentinel in 128, every 13 s. So its pace says
// when it is taken to have stopped. Else two slow readers would take each other's windows by turns. It takes
// a minute at most: a look at the first sample long before the others makes the pace seem slow for hundreds
// of samples. So two readers that are seen more seldom do take windows by turns. So do two that read
// thousands of samples at once and then none for some seconds: the pace is that of the latest samples.
//
// Two plans may have the same files. Each counts its own uses only, so what one gives up goes for the other,
// too, as what its reader is done with does. The other one's reader then reads a sample itself, and repair()
// brings the rest.
#include <algorithm>

#include "plan/staging/budget.h"
#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// A reader that was not seen to move for this long has stopped, if that is also so many times what it takes
// from one sentinel to the next. It reads in batches, so its pace is uneven. Whatever that is, the reader has
// stopped after the longer time.
constexpr auto kIdle = std::chrono::seconds(5);
constexpr double kUneven = 4;
constexpr auto kSurelyIdle = std::chrono::minutes(1);

// Samples that a window gives up in one go before everything else gets its turn: some milliseconds. After
// each go the policy looks at all chunks (NextUsePolicy::set_staged()), so it is to be worth it.
constexpr uint64_t kGivenUpPerStep = 256;

}  // namespace

// A reader that is back is noticed when its window is served, so in that turn it may still give up something.
bool ReaderWindow::has_stopped() {
  if (!moved_) moved_ = parts_.now;
  const Duration since = parts_.now - *moved_;
  if (since <= kIdle) return false;
  if (since > kSurelyIdle) return true;
  const TrackerStatus status = reader_->tracker().status();
  if (status.state != TrackerState::following || status.samples_per_second <= 0) return true;
  return in_seconds(since) > kUneven * gap_ / status.samples_per_second;
}

uint64_t ReaderWindow::lacks(const BudgetLoad& load) const {
  if (idle_ || !held_back_ || !reader_->tracker().is_followed()) return 0;
  BudgetLoad others = load;
  others.held -= resident_bytes();
  return reader_share(others, false) - reader_budget(others, false);
}

// Takes from those that have stopped what others lack. `waiting`: a plan is to keep all, and waits for its
// room. `load` has what all windows hold; what is given up is taken off. True if there was something.
bool Staging::make_room(const std::map<std::string, std::shared_ptr<StagedPlan>>& plans, bool waiting,
                        BudgetLoad& load) {
  const auto for_each_window = [&plans](const auto& visit) {
    for (const auto& entry : plans) {
      for (const auto& window : entry.second->windows) {
        if (!entry.second->keeps_all) visit(*window);
      }
    }
  };
  const auto all_have_stopped = [](const StagedPlan& plan) {
    return std::all_of(plan.windows.begin(), plan.windows.end(),
                       [](const auto& window) { return window->idle(); });
  };
  uint64_t missing = waiting ? load.held - std::min(load.held, load.budget) : 0;
  const bool to_stay = missing > 0;
  if (!to_stay) {
    for_each_window([&](const ReaderWindow& window) { missing = std::max(missing, window.lacks(load)); });
  }
  bool given_up = false;
  for_each_window([&](ReaderWindow& window) {
    if (!window.idle() || missing == 0 || !(to_stay || all_have_stopped(window.plan()))) return;
    const uint64_t before = window.resident_bytes();
    given_up = window.give_up(to_stay ? 0 : reader_share(load, true), missing) || given_up;
    const uint64_t bytes = before - window.resident_bytes();
    load.held -= bytes;
    missing -= std::min(missing, bytes);
  });
  return given_up;
}

bool ReaderWindow::give_up(uint64_t least, uint64_t most) {
  uint64_t end = fetched_;
  uint64_t given = 0;
  // What is left to the reader for its size comes before all that is resident.
  for (uint64_t n = 0; n < kGivenUpPerStep && given < most && resident_bytes() > least; ++n) {
    const auto& [position, bytes] = costs_.back();
    if (position < dropped_) break;  // the reader is back, and has passed it
    end = position;
    given += bytes;
    bytes_ -= bytes;
    costs_.pop_back();
  }
  if (end == fetched_) return false;
  forget_units(end);
  drop_window(end);
  forget_sentinels(end, UINT64_MAX);
  std::erase_if(repairs_, [end](const auto& unit) { return unit->position >= end; });
  check_until_ = std::min(check_until_, end);
  repaired_.erase(repaired_.lower_bound(end), repaired_.end());
  if (newest_ && newest_position_ >= end) newest_.reset();
  fetched_ = held_ = filled_ = end;
  records_filled_ = 0;
  // Of those before `end` it is not known. So the longest run seems to grow each time, and the tracker may
  // come to expect SentinelChooser::kLongestGap: too much does little harm, too little might lose the reader.
  kept_run_ = longest_kept_run_;
  if (asked_ == 0) deadline_ = 0;
  if (end > staged_) return true;
  pushed_until_ = std::max(pushed_until_, staged_);
  staged_ = end;
  complete_ = true;
  chooser_.restart(sentinels_.empty() ? high_water_ : sentinels_.rbegin()->first);
  tell_policy();
  return true;
}

}  // namespace clairfs
