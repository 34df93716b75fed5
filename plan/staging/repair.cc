// Pages that the kernel took back before the reader came: it may at any time, and does when memory is short.
#include <algorithm>
#include <utility>

#include "plan/staging/lane.h"
#include "plan/staging/staging.h"

namespace clairfs {
namespace {

// Looking costs 4 us a sample and 15 ns a page. So much at most, so often at most: some per cent of a core
// where memory stays short.
constexpr uint64_t kMostChecked = 1024;
constexpr uint64_t kMostBytesChecked = 256ULL << 20;
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

}  // namespace

/// Brings back what has gone; true if there is more to do at once.
bool Staging::repair(Lane& lane) {
  notice_losses(lane);
  forget_sentinels(lane, lane.safe);
  lane.repaired.erase(lane.repaired.begin(), lane.repaired.lower_bound(lane.safe));
  const bool more = look_for_losses(lane);
  return push_repairs(lane) || more;
}

void Staging::forget_repairs(Lane& lane) {
  lane.repairs.clear();
  lane.check_until = lane.checked;
  lane.lost_from.reset();
}

// One sample that was pushed and had to be read hardly ever is the only one.
void Staging::notice_losses(Lane& lane) {
  for (const uint64_t position : lane.reader->tracker().take_reads_of_pushed()) {
    if (position >= lane.staged || lane.sentinels.contains(position)) continue;
    lane.lost_from = std::min(lane.lost_from.value_or(position), position);
  }
  if (!lane.lost_from || lane.checked < lane.check_until || now_ < lane.check_again) return;
  lane.check_again = now_ + kBetweenChecks;
  lane.checked = *std::exchange(lane.lost_from, std::nullopt);
  lane.check_until = std::min(lane.staged, lane.front + kMostChecked);
  lane.check_bytes = kMostBytesChecked;
}

bool Staging::look_for_losses(Lane& lane) {
  lane.checked = std::max({lane.checked, lane.safe, lane.horizon.begin()});
  for (uint64_t n = 0; lane.checked < lane.check_until && n < kPushesPerStep; ++n, ++lane.checked) {
    const uint64_t position = lane.checked;
    const uint32_t sample = lane.horizon.sample_at(position);
    const uint64_t bytes = page_bytes(lane.reader->index(), sample);
    // What is lost twice is left to the reader: fetching it over and over would load the source. An earlier
    // use that is not known to be over may be a sentinel.
    if (lane.repaired.contains(position) || bytes > lane.budget || opened(lane, position) ||
        lane.horizon.uses_within(sample, lane.safe, position))
      continue;
    const std::optional<bool> whole = is_whole(lane, position);
    if (!whole || bytes > lane.check_bytes) lane.check_until = lane.checked;
    lane.check_bytes -= std::min(lane.check_bytes, bytes);
    if (whole.value_or(true)) continue;
    lane.repaired.insert(position);
    if (!lane.plan->keeps_all && lane.plan->ledger->stays(sample)) let_go(*lane.plan, sample);
    for (auto& unit : units_of(lane, position)) lane.repairs.push_back(std::move(unit));
  }
  return lane.checked < lane.check_until;
}

/// Whether what was pushed of the sample is there; nullopt where the kernel does not tell.
std::optional<bool> Staging::is_whole(const Lane& lane, uint64_t position) {
  for (const PageRange& pages : lane.plan->ledger->pages_of(lane.horizon.sample_at(position))) {
    for (const PageRange& pushed : sentinels_.without_open(pages)) {
      const uint64_t bytes = pushed.end - pushed.begin;
      const auto there = pages_.pages_of(pushed.file, pushed.begin, bytes);
      if (!there) return std::nullopt;
      if (*there < round_to_pages(bytes) / kPageSize) return false;
    }
  }
  return true;
}

// Asked for in order, pushed as they arrive.
bool Staging::push_repairs(Lane& lane) {
  uint64_t pushed = 0;
  for (auto at = lane.repairs.begin(); at != lane.repairs.end() && pushed < kPushesPerStep;) {
    const auto unit = *at;
    const bool late = opened(lane, unit->position);
    if (!late && !unit->in_flight && !ask(lane, unit, nullptr, due(lane, unit->position))) break;
    if (!late && !unit->arrived) {
      ++at;
      continue;
    }
    at = lane.repairs.erase(at);
    if (late || unit->failed) continue;
    const bool done = push_pages(*unit);
    if (done && unit->last) metrics_.staging_repaired.add();
    ++pushed;
  }
  return pushed == kPushesPerStep;
}

}  // namespace clairfs
