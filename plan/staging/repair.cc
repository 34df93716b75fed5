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
  forget_sentinels(window, 0, window.safe);
  window.repaired.erase(window.repaired.begin(), window.repaired.lower_bound(window.safe));
  const bool more = look_for_losses(window);
  return push_repairs(window) || more;
}

void Staging::forget_repairs(ReaderWindow& window) {
  window.repairs.clear();
  window.check_until = window.checked;
  window.lost_from.reset();
}

// One sample that was pushed and had to be read hardly ever is the only one.
void Staging::notice_losses(ReaderWindow& window) {
  for (const uint64_t position : window.reader->tracker().take_reads_of_pushed()) {
    if (position >= window.staged || window.sentinels.contains(position)) continue;
    window.lost_from = std::min(window.lost_from.value_or(position), position);
  }
  if (!window.lost_from || window.checked < window.check_until || parts_.now < window.check_again) return;
  window.check_again = parts_.now + kBetweenChecks;
  window.checked = *std::exchange(window.lost_from, std::nullopt);
  window.check_until = std::min(window.staged, window.high_water + kMostChecked);
  window.check_bytes = kMostBytesChecked;
}

bool Staging::look_for_losses(ReaderWindow& window) {
  window.checked = std::max({window.checked, window.safe, window.timeline.begin()});
  for (uint64_t n = 0; window.checked < window.check_until && n < kPushesPerStep; ++n, ++window.checked) {
    const uint64_t position = window.checked;
    const uint32_t sample = window.timeline.sample_at(position);
    const uint64_t bytes = page_bytes(window.reader->index(), sample);
    // What is lost twice is left to the reader: fetching it over and over would load the source. An earlier
    // use that is not known to be over may be a sentinel.
    if (window.repaired.contains(position) || bytes > window.budget || opened(window, position) ||
        window.timeline.uses_within(sample, window.safe, position))
      continue;
    const std::optional<bool> whole = is_whole(window, position);
    if (!whole || bytes > window.check_bytes) window.check_until = window.checked;
    window.check_bytes -= std::min(window.check_bytes, bytes);
    if (whole.value_or(true)) continue;
    window.repaired.insert(position);
    if (!window.plan->keeps_all && window.plan->ledger->stays(sample)) window.plan->let_go(sample);
    for (auto& unit : units_of(window, position)) window.repairs.push_back(std::move(unit));
  }
  return window.checked < window.check_until;
}

// Whether what was pushed of the sample is there; nullopt where the kernel does not tell.
std::optional<bool> Staging::is_whole(const ReaderWindow& window, uint64_t position) {
  for (const PageRange& pages : window.plan->ledger->pages_of(window.timeline.sample_at(position))) {
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
  for (auto at = window.repairs.begin(); at != window.repairs.end() && pushed < kPushesPerStep;) {
    const auto unit = *at;
    const bool late = opened(window, unit->position);
    if (!late && !unit->in_flight && !ask(window, unit, nullptr, due(window, unit->position))) break;
    if (!late && !unit->arrived) {
      ++at;
      continue;
    }
    at = window.repairs.erase(at);
    if (late || unit->failed) continue;
    const bool done = parts_.push_pages(*unit);
    if (done && unit->last) parts_.metrics.staging_repaired.add();
    ++pushed;
  }
  return pushed == kPushesPerStep;
}

}  // namespace clairfs
