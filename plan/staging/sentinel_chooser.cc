#include "plan/staging/sentinel_chooser.h"

#include <algorithm>

namespace clairfs {
namespace {

// A window holds at least that many sentinels, however short it is.
constexpr uint64_t kSentinelsPerWindow = 8;

// The ranks of a node share them, but each window holds three: with fewer a rank would be half through its
// window before it is known.
constexpr uint64_t kSentinelsPerRank = 3;

// A sentinel comes up to an eighth of the gap sooner than the gap says.
constexpr uint32_t kSpread = 8;

}  // namespace

// A long window can do with fewer sentinels. The reader's tracker must go on expecting the old, wider gaps
// until the reader has left them behind.
void SentinelChooser::choose_gap(const Window& window) {
  // How many samples the window holds when it is full, by the size of those in it. What lies before the
  // high-water mark is pushed with the last gap: it says nothing of the window.
  if (window.fetched > window.high_water) {
    const uint64_t held = window.fetched - window.high_water;
    const uint64_t mean = std::max<uint64_t>(window.bytes / held, 1);
    const uint64_t samples = window.bytes == 0 ? held : std::min(window.budget / mean, window.most);
    const uint64_t sentinels = std::max(kSentinelsPerWindow / readers_, kSentinelsPerRank);
    gap_ = static_cast<uint32_t>(std::clamp<uint64_t>(samples / sentinels, 1, kLongestGap));
  }
  if (gap_ >= widest_gap_ || window.high_water >= widest_until_) widest_gap_ = gap_;
  if (gap_ == widest_gap_) widest_until_ = window.staged;
}

// Where the pages are not staging's to leave out (they are there for an earlier use) the next sample takes
// its place: of a small dataset several in a row may be such.
bool SentinelChooser::choose(uint64_t position, bool last_of_epoch, bool possible) {
  if (last_of_epoch) next_ = std::min(next_, position);
  if (position < next_ || !possible) return false;
  const uint64_t spread = std::max<uint64_t>(gap_ / kSpread, 1);
  const uint64_t jitter = (position * 0x9E3779B97F4A7C15ULL >> 32) % spread;  // Fibonacci hashing
  next_ = position + gap_ - jitter;
  const auto distance = static_cast<uint32_t>(position - std::min(position, latest_));
  latest_ = position;
  if (distance > gap_) {
    widest_gap_ = std::max(widest_gap_, distance);
    widest_until_ = position + 1;
  }
  return true;
}

// One that is not overdue is expected in time: else the tracker of each plan would bear with more.
uint32_t SentinelChooser::widest_gap(uint64_t staged, uint64_t end) const {
  const uint64_t without = staged > next_ ? end : staged;
  return std::max(widest_gap_, static_cast<uint32_t>(without - std::min(without, latest_)));
}

}  // namespace clairfs
