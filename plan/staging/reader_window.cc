#include "plan/staging/reader_window.h"

#include <algorithm>
#include <utility>

#include "plan/staging/staged_plan.h"

namespace clairfs {

bool ReaderWindow::serve(uint64_t budget) {
  held_back_ = false;
  if (const auto left = reader_->tracker().look_for_unseen_end(parts_.now)) parts_.look_again_within(*left);
  follow_timeline();
  if (timeline_.empty()) return false;
  follow_reader();
  skip_opened();
  // The reader may have been found outside of what the planner has made so far.
  if (!started_ || staged_ < timeline_.begin()) return false;
  bool busy = drop_consumed();
  const TrackerState state = reader_->tracker().state();
  // The last samples opened are not the last ones that several workers read.
  const bool finished = state == TrackerState::finished && staged_ >= high_water_;
  if (state == TrackerState::suspended || finished) {
    // Nothing stays pinned for it, and what was pushed in vain would hide from the tracker what is read.
    if (fetched_ > high_water_ || !units_.empty()) restart(high_water_);
    forget_repairs();
    staged_published_ = staged_;
    return busy;
  }
  busy = repair() || busy;
  // Records that are needed soon lie side by side, also those of different readers.
  if (plan_.of_records) parts_.cache.gather();
  full_ = !issue_fetches(budget);
  if (plan_.of_records) return busy;
  return push_and_fill() || busy;
}

bool ReaderWindow::push_and_fill() {
  const std::optional<bool> full = std::exchange(full_, std::nullopt);
  if (!full) return false;
  bool busy = push_arrived();
  if (*full) busy = fill_tiers() || busy;
  staged_published_ = staged_;
  return busy;
}

void ReaderWindow::leave() {
  drop_window(dropped_);
  forget_sentinels(0, UINT64_MAX);
}

uint64_t ReaderWindow::ahead() const {
  const uint64_t high_water = reader_->tracker().high_water();
  return std::max(staged_published_.load(), high_water) - high_water;
}

void ReaderWindow::follow_timeline() {
  Timeline timeline = reader_->timeline();
  if (timeline_ == timeline) return;
  const bool elsewhere = !timeline_.empty() && staged_ < timeline.begin();
  // While the old positions can still be looked up.
  if (elsewhere) restart(staged_);
  if (!timeline_.empty()) drop_until(timeline.begin(), UINT64_MAX);
  timeline_ = std::move(timeline);
  // What has no later use in it is kept as without a plan, and not left out.
  if (plan_.goes_on_unknown) return;
  parts_.policy.set_timeline(reader_->order(), timeline_, staged_);
}

void ReaderWindow::follow_reader() {
  const uint64_t high_water = reader_->tracker().high_water();
  if (!timeline_.covers(high_water)) return;  // the planner is bringing the timeline there
  if (!started_ || high_water < high_water_ || fetched_ < timeline_.begin()) {
    started_ = true;
    restart(high_water);
    return;
  }
  if (high_water == high_water_) return;
  moved_ = parts_.now;
  high_water_ = high_water;
  for (; !costs_.empty() && costs_.front().first < high_water; costs_.pop_front()) {
    const uint64_t bytes = costs_.front().second;
    bytes_ -= bytes;
    if (bytes > 0) oversize_bytes_ = 0;  // such a sample is the first with bytes in its window
  }
}

// Overtaken: what has been opened before it was pushed.
void ReaderWindow::skip_opened() {
  // Never beyond the high-water mark as this turn knows it: both may have moved on since, even to another
  // timeline.
  const uint64_t safe = reader_->tracker().position();
  if (timeline_.covers(safe) && std::min(safe, high_water_) > safe_) {
    safe_ = std::min(safe, high_water_);
    leave_open_again();
  }
  const uint64_t before = staged_;
  while (!units_.empty() && overtaken()) {
    hand_on(units_.front()->position + (units_.front()->last ? 1 : 0));
    pop_unit();
    complete_ = true;
  }
  hand_on(std::max(staged_, safe_));
  hand_on(read_unseen());
  fetched_ = std::max(fetched_, staged_);
  filled_ = std::max({filled_, fetched_, high_water_});
  if (staged_ != before) tell_policy();
}

// One past what the reader has read of what the window gave up. That had been pushed, so the reader was not
// seen there, but it is further now than opens stray: nothing need be pushed again. Should another's access
// have moved the high-water mark, the reader reads the next sample itself, and repair() brings the others.
uint64_t ReaderWindow::read_unseen() const {
  if (!units_.empty() || staged_ >= pushed_until_) return 0;
  const uint64_t strays = reader_->tracker().reorder_window();
  return std::min(pushed_until_, high_water_ - std::min(high_water_, strays));
}

// What has been dropped was opened, too: the reader may have gone on since this turn looked where it is.
bool ReaderWindow::opened(uint64_t position) const {
  return position < std::max(safe_, dropped_) ||
         (position < high_water_ && reader_->tracker().opened(position));
}

// Whether the first unit need not be pushed any more. A part of a stream that is being read is of use once
// it has been asked for: without it, the reader would ask for the rest of it once more. So is a record whose
// reader asks for it page by page, if it is in memory when it arrives: a push waits for a READ of the same
// page that comes a moment later, which else may wait for the source.
bool ReaderWindow::overtaken() const {
  const StagedUnit& unit = *units_.front();
  if (!opened(unit.position)) return false;
  const bool on_its_way = asked_ > 0 && unit.chunk;
  if (!on_its_way || unit.position < safe_) return true;
  const uint64_t streams = reader_->streams();
  if (streams > 0) return unit.position + streams < high_water_;
  const bool by_pages = plan_.of_records && reader_->reads_by_pages();
  return !by_pages || (unit.arrived && !parts_.cache.in_memory(unit.file, unit.begin, unit.end - unit.begin));
}

// Everything before `position` has been pushed, or is the reader's.
void ReaderWindow::hand_on(uint64_t position) {
  staged_ = std::max(staged_, position);
  hold_until(staged_);
}

// From here on the pages of everything before `position` stay until the reader is done with it. They may be
// there though it has not been pushed as a whole: with its first chunk, for a neighbour, for an earlier use.
void ReaderWindow::hold_until(uint64_t position) {
  for (; held_ < position; ++held_) {
    if (plan_.keeps_all || held_ < timeline_.begin()) continue;
    plan_.ledger->hold(timeline_.sample_at(held_));
  }
}

void ReaderWindow::tell_policy() const {
  parts_.policy.set_staged(reader_->order(), staged_);
}

// The reader is somewhere else: begin anew in front of it.
void ReaderWindow::restart(uint64_t position) {
  drop_window(dropped_);
  units_.clear();
  newest_.reset();
  open_again_.clear();
  forget_sentinels(0, UINT64_MAX);
  repaired_.clear();
  forget_repairs();
  asked_ = 0;
  asked_bytes_ = 0;
  complete_ = true;
  high_water_ = safe_ = staged_ = fetched_ = held_ = filled_ = dropped_ = position;
  records_filled_ = 0;
  pushed_until_ = position;
  chooser_.restart(position);
  costs_.clear();
  bytes_ = oversize_bytes_ = 0;
  kept_run_ = longest_kept_run_ = 0;
  moved_ = parts_.now;
  deadline_ = 0;
  tell_policy();
}

// What was pushed from `from` on, or was about to be, and will not be read there leaves the page cache again.
void ReaderWindow::drop_window(uint64_t from) const {
  if (plan_.keeps_all || timeline_.empty()) return;
  const uint64_t end = std::min(held_, timeline_.end());
  for (uint64_t p = std::max(from, timeline_.begin()); p < end; ++p) {
    const uint32_t sample = timeline_.sample_at(p);
    plan_.drop_released(sample);
  }
}

bool ReaderWindow::drop_consumed() {
  const uint64_t safe = reader_->tracker().position();
  return timeline_.covers(safe) && drop_until(safe, kPushesPerStep);
}

// Drops the pages of what lies before `end` and has been pushed, of at most so many samples. True if there
// is more.
bool ReaderWindow::drop_until(uint64_t end, uint64_t most) {
  end = std::min(end, staged_);
  const bool alone = plan_.windows.size() == 1;
  // A READ for this reader has filled what was left out for another.
  const auto reopen = [&](uint32_t sample) {
    for (const auto& other : plan_.windows) {
      if (other.get() == this || other->timeline_.empty()) continue;
      for (auto at = other->sentinels_.lower_bound(std::max(other->high_water_, other->timeline_.begin()));
           at != other->sentinels_.end() && at->first < other->timeline_.end(); ++at) {
        if (other->timeline_.sample_at(at->first) == sample) other->leave_open(at->first);
      }
    }
  };
  for (; dropped_ < end; ++dropped_) {
    if (dropped_ < timeline_.begin()) continue;
    const uint32_t sample = timeline_.sample_at(dropped_);
    const bool elsewhere = !alone && staged_elsewhere(sample);
    if (elsewhere) reopen(sample);
    if (plan_.keeps_all && plan_.ledger->stays(sample)) continue;
    if (most-- == 0) return true;
    if (plan_.keeps_all) {
      // A reader that overtook the pushes brought its pages itself. Where samples share files, it may have
      // brought those of others, too, and passed sentinels unseen.
      if (!reader_->index().shares_files() && is_whole(dropped_).value_or(false))
        plan_.ledger->note_whole(sample);
      continue;
    }
    keep_or_let_go(dropped_);
    if (plan_.drop_released(sample)) parts_.metrics.staging_dropped.add();
  }
  return false;
}

}  // namespace clairfs
