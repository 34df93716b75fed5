// Pages that the kernel took back before the reader came: it may at any time, and does when memory is short.
#include <algorithm>
#include <utility>

#include "plan/staging/staged_plan.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Looking costs 4 us a sample and 15 ns a page. So much at most, so often at most: some per cent of a core
// where memory stays short.
constexpr uint64_t kMostChecked = 1024;
constexpr uint64_t kMostBytesChecked = 256ULL << 20;
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

}  // namespace

// Brings back what has gone; true if there is more to do at once.
bool Staging::repair(ReaderWindow& window) {
  notice_losses(window);
  window.forget_sentinels(0, window.safe_);
  window.repaired_.erase(window.repaired_.begin(), window.repaired_.lower_bound(window.safe_));
  const bool more = look_for_losses(window);
  return push_repairs(window) || more;
}

void ReaderWindow::forget_repairs() {
  repairs_.clear();
  check_until_ = checked_;
  lost_from_.reset();
}

// One sample that was pushed and had to be read hardly ever is the only one.
void Staging::notice_losses(ReaderWindow& window) {
  for (const uint64_t position : window.reader_->tracker().take_reads_of_pushed()) {
    if (position >= window.staged_ || window.sentinels_.contains(position)) continue;
    window.lost_from_ = std::min(window.lost_from_.value_or(position), position);
  }
  if (!window.lost_from_ || window.checked_ < window.check_until_ || parts_.now < window.check_again_) return;
  window.check_again_ = parts_.now + kBetweenChecks;
  window.checked_ = *std::exchange(window.lost_from_, std::nullopt);
  window.check_until_ = std::min(window.staged_, window.high_water_ + kMostChecked);
  window.check_bytes_ = kMostBytesChecked;
}

bool Staging::look_for_losses(ReaderWindow& window) {
  window.checked_ = std::max({window.checked_, window.safe_, window.timeline_.begin()});
  for (uint64_t n = 0; window.checked_ < window.check_until_ && n < kPushesPerStep; ++n, ++window.checked_) {
    const uint64_t position = window.checked_;
    const uint32_t sample = window.timeline_.sample_at(position);
    const uint64_t bytes = page_bytes(window.reader_->index(), sample);
    // What is lost twice is left to the reader: fetching it over and over would load the source. An earlier
    // use that is not known to be over may be a sentinel.
    if (window.repaired_.contains(position) || bytes > window.budget_ || window.opened(position) ||
        window.timeline_.uses_within(sample, window.safe_, position))
      continue;
    const std::optional<bool> whole = window.is_whole(position);
    if (!whole || bytes > window.check_bytes_) window.check_until_ = window.checked_;
    window.check_bytes_ -= std::min(window.check_bytes_, bytes);
    if (whole.value_or(true)) continue;
    window.repaired_.insert(position);
    if (!window.plan_.keeps_all && window.plan_.ledger->stays(sample)) window.plan_.let_go(sample);
    for (auto& unit : window.units_of(position)) window.repairs_.push_back(std::move(unit));
  }
  return window.checked_ < window.check_until_;
}

// Whether what was pushed of the sample is there; nullopt where the kernel does not tell.
std::optional<bool> ReaderWindow::is_whole(uint64_t position) const {
  for (const PageRange& pages : plan_.ledger->pages_of(timeline_.sample_at(position))) {
    for (const PageRange& pushed : parts_.sentinel_pages.without_open(pages)) {
      const uint64_t bytes = pushed.end - pushed.begin;
      const auto there = parts_.page_cache.pages_of(pushed.file, pushed.begin, bytes);
      if (!there) return std::nullopt;
      if (*there < round_to_pages(bytes) / kPageSize) return false;
    }
  }
  return true;
}

// Asked for in order, pushed as they arrive.
bool Staging::push_repairs(ReaderWindow& window) {
  uint64_t pushed = 0;
  for (auto at = window.repairs_.begin(); at != window.repairs_.end() && pushed < kPushesPerStep;) {
    const auto unit = *at;
    const bool late = window.opened(unit->position);
    if (!late && !unit->in_flight && !window.ask(unit, nullptr, window.due(unit->position))) break;
    if (!late && !unit->arrived) {
      ++at;
      continue;
    }
    at = window.repairs_.erase(at);
    if (late || unit->failed) continue;
    const bool done = parts_.push_pages(*unit);
    if (done && unit->last) parts_.metrics.staging_repaired.add();
    ++pushed;
  }
  return pushed == kPushesPerStep;
}

}  // namespace clairfs
