#include "plan/staging/reader_window.h"

#include <algorithm>
#include <utility>

#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {

// One past what the reader has read of what the window gave up. That had been pushed, so the reader was not
// seen there, but it is further now than opens stray: nothing need be pushed again. Should another's access
// have moved the high-water mark, the reader reads the next sample itself, and repair() brings the others.
uint64_t ReaderWindow::read_unseen() const {
  if (!units_.empty() || staged_ >= pushed_until_) return 0;
  const uint64_t strays = reader_->tracker().reorder_window();
  return std::min(pushed_until_, high_water_ - std::min(high_water_, strays));
}

bool ReaderWindow::opened(uint64_t position) const {
  return position < safe_ || (position < high_water_ && reader_->tracker().opened(position));
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

}  // namespace clairfs
