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

}  // namespace clairfs
