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
bool ReaderWindow::repair() {
  notice_losses();
  forget_sentinels(0, safe_);
  repaired_.erase(repaired_.begin(), repaired_.lower_bound(safe_));
  const bool more = look_for_losses();
  return push_repairs() || more;
}

void ReaderWindow::forget_repairs() {
  repairs_.clear();
  check_until_ = checked_;
  lost_from_.reset();
}

// One sample that was pushed and had to be read hardly ever is the only one.
void ReaderWindow::notice_losses() {
  for (const uint64_t position : reader_->tracker().take_reads_of_pushed()) {
    if (position >= staged_ || sentinels_.contains(position)) continue;
    lost_from_ = std::min(lost_from_.value_or(position), position);
  }
  if (!lost_from_ || checked_ < check_until_ || parts_.now < check_again_) return;
  check_again_ = parts_.now + kBetweenChecks;
  checked_ = *std::exchange(lost_from_, std::nullopt);
  check_until_ = std::min(staged_, high_water_ + kMostChecked);
  check_bytes_ = kMostBytesChecked;
}

bool ReaderWindow::look_for_losses() {
  checked_ = std::max({checked_, safe_, timeline_.begin()});
  for (uint64_t n = 0; checked_ < check_until_ && n < kPushesPerStep; ++n, ++checked_) {
    const uint64_t position = checked_;
    const uint32_t sample = timeline_.sample_at(position);
    const uint64_t bytes = page_bytes(reader_->index(), sample);
    // What is lost twice is left to the reader: fetching it over and over would load the source. An earlier
    // use that is not known to be over may be a sentinel.
    if (repaired_.contains(position) || bytes > budget_ || opened(position) ||
        timeline_.uses_within(sample, safe_, position))
      continue;
    const std::optional<bool> whole = is_whole(position);
    if (!whole || bytes > check_bytes_) check_until_ = checked_;
    check_bytes_ -= std::min(check_bytes_, bytes);
    if (whole.value_or(true)) continue;
    repaired_.insert(position);
    if (!plan_.keeps_all && plan_.ledger->stays(sample)) plan_.let_go(sample);
    for (auto& unit : units_of(position)) repairs_.push_back(std::move(unit));
  }
  return checked_ < check_until_;
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
bool ReaderWindow::push_repairs() {
  uint64_t pushed = 0;
  for (auto at = repairs_.begin(); at != repairs_.end() && pushed < kPushesPerStep;) {
    const auto unit = *at;
    const bool late = opened(unit->position);
    if (!late && !unit->in_flight && !ask(unit, nullptr, due(unit->position))) break;
    if (!late && !unit->arrived) {
      ++at;
      continue;
    }
    at = repairs_.erase(at);
    if (late || unit->failed) continue;
    const bool done = parts_.push_pages(*unit);
    if (done && unit->last) parts_.metrics.staging_repaired.add();
    ++pushed;
  }
  return pushed == kPushesPerStep;
}

}  // namespace clairfs
