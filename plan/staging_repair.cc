// Pages that the kernel took back before the reader came: it may at any time, and does when memory is short.
#include <algorithm>
#include <utility>

#include "plan/staging.h"
#include "plan/staging_lane.h"

namespace clairfs {
namespace {

// Looking costs 4 us a sample. So many at most, so often at most: 4 % of a core where memory stays short.
constexpr uint64_t kMostChecked = 1024;
constexpr auto kBetweenChecks = std::chrono::milliseconds(100);

}  // namespace

/// Brings back what has gone; true if there is more to do at once.
bool Staging::repair(Lane& lane) {
  notice_losses(lane);
  const bool more = look_for_losses(lane);
  return push_repairs(lane) || more;
}

// One sample that was pushed and had to be read hardly ever is the only one.
void Staging::notice_losses(Lane& lane) {
  const auto lost = [&](const PlanPosition& place) {
    const auto position = lane.run->absolute(place);
    return position && *position < lane.staged && !lane.sentinels.contains(*position);
  };
  const auto reads = lane.run->tracker().take_reads_of_pushed();
  const TimePoint now = clock_.now();
  if (now < lane.check_again || std::none_of(reads.begin(), reads.end(), lost)) return;
  lane.check_again = now + kBetweenChecks;
  lane.checked = lane.front;
  lane.check_until = std::min(lane.staged, lane.front + kMostChecked);
}

bool Staging::look_for_losses(Lane& lane) {
  lane.checked = std::max({lane.checked, lane.front, lane.horizon.begin()});
  for (uint64_t n = 0; lane.checked < lane.check_until && n < kPushesPerStep; ++n, ++lane.checked) {
    const uint64_t position = lane.checked;
    // What is lost twice is left to the reader: fetching it over and over would load the source.
    if (lane.repaired.contains(position) || unread_before(lane, position)) continue;
    const std::optional<bool> whole = is_whole(lane, position);
    if (!whole) lane.check_until = lane.checked;
    if (whole.value_or(true)) continue;
    lane.repaired.insert(position);
    for (auto& unit : units_of(lane, position)) lane.repairs.push_back(std::move(unit));
  }
  return lane.checked < lane.check_until;
}

/// Whether what was pushed of the sample is there; nullopt where the kernel does not tell.
std::optional<bool> Staging::is_whole(const Lane& lane, uint64_t position) {
  for (const auto& unit : units_of(lane, position)) {
    const uint64_t end = pushed_end(*unit, lane.sentinels.contains(position));
    if (end <= unit->begin) continue;
    const auto there = pages_.pages_of(unit->file, unit->begin, end - unit->begin);
    if (!there) return std::nullopt;
    if (*there < round_to_pages(end - unit->begin) / kPageSize) return false;
  }
  return true;
}

// In any order, as they arrive.
bool Staging::push_repairs(Lane& lane) {
  uint64_t pushed = 0;
  for (auto at = lane.repairs.begin(); at != lane.repairs.end() && pushed < kPushesPerStep;) {
    const auto unit = *at;
    const bool late = unit->position < lane.front;
    if (!late && unit->bytes == 0 && may_ask(*unit)) ask(unit, due(lane, unit->position));
    if (!late && !unit->arrived) {
      ++at;
      continue;
    }
    at = lane.repairs.erase(at);
    if (late || unit->failed) continue;
    const uint64_t end = pushed_end(*unit, lane.sentinels.contains(unit->position));
    if (end > unit->begin && !push_pages(*unit, end)) metrics_.staging_push_failures.add();
    if (unit->last) metrics_.staging_repaired.add();
    ++pushed;
  }
  return pushed == kPushesPerStep;
}

}  // namespace clairfs
