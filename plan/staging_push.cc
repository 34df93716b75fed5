// Pushing what has arrived, and which samples are left open as sentinels.
#include <algorithm>
#include <utility>

#include "plan/staging.h"
#include "plan/staging_lane.h"

namespace clairfs {
namespace {

// In windows of a thousand samples and more one in 128 is left incomplete: a request for it costs a reader as
// much as several samples that need none, and a place known to 128 samples is good enough for such a window.
constexpr uint32_t kLongestGap = 128;

// A window holds at least that many sentinels, however short it is.
constexpr uint64_t kSentinelsPerWindow = 8;

}  // namespace

// A long window can do with fewer sentinels. The tracker must go on expecting the old, wider gaps until the
// reader has left them behind.
void Staging::choose_gap(Lane& lane) {
  // How many samples the window holds when it is full, by the size of those in it. What lies before the front
  // is pushed with the last gap: it says nothing of the window.
  if (lane.fetched > lane.front) {
    const uint64_t held = lane.fetched - lane.front;
    const uint64_t mean = std::max<uint64_t>(lane.window_bytes / held, 1);
    const uint64_t window = lane.window_bytes == 0 ? held : lane.budget / mean;
    lane.gap = static_cast<uint32_t>(std::clamp<uint64_t>(window / kSentinelsPerWindow, 1, kLongestGap));
  }
  if (lane.gap >= lane.widest_gap || lane.front >= lane.widest_until) lane.widest_gap = lane.gap;
  if (lane.gap == lane.widest_gap) lane.widest_until = lane.staged;
}

// Tells the tracker what is about to be pushed, before it is: a reader close behind may pass it unseen at
// once.
void Staging::announce(Lane& lane) {
  uint64_t end = lane.staged;
  uint64_t units = 0;
  for (const auto& unit : lane.units) {
    if (++units > kPushesPerStep || (unit->chunk && !unit->arrived)) break;
    end = unit->position + 1;
  }
  lane.run->tracker().set_pushed(lane.run->place(end), lane.widest_gap);
}

bool Staging::push_arrived(Lane& lane) {
  choose_gap(lane);
  announce(lane);
  const uint64_t before = lane.staged;
  uint64_t pushed = 0;
  for (; !lane.units.empty() && pushed < kPushesPerStep; ++pushed) {
    const auto unit = lane.units.front();
    const bool overtaken = opened(lane, unit->position);
    if (!overtaken && (lane.asked == 0 || (unit->chunk && !unit->arrived))) break;
    if (overtaken) {
      lane.complete = true;
    } else {
      push(lane, *unit);
    }
    pop_unit(lane);
    if (unit->last) ++lane.staged;
  }
  if (lane.staged != before) tell_policy(lane);
  return pushed > 0;
}

// Every `gap` samples or a little sooner, unevenly, so that sentinels do not fall on one of several ranks
// alone; and the last sample of an epoch. Where the pages are not staging's to leave out (they are there for
// an earlier use) the next sample takes its place: of a small dataset several in a row may be such.
bool Staging::is_sentinel(Lane& lane, uint64_t position, bool possible) {
  const PlannedEpoch* epoch = lane.horizon.epoch_at(position);
  if (epoch != nullptr && position + 1 == epoch->end())
    lane.next_sentinel = std::min(lane.next_sentinel, position);
  if (position < lane.next_sentinel || !possible) return false;
  const uint64_t spread = std::max<uint64_t>(lane.gap / 8, 1);
  const uint64_t jitter = (position * 0x9E3779B97F4A7C15ULL >> 32) % spread;  // Fibonacci hashing
  lane.next_sentinel = position + lane.gap - jitter;
  return true;
}

/// Where the bytes of a unit end that are pushed: a sentinel's last page is not.
uint64_t Staging::pushed_end(const Unit& unit, bool sentinel) {
  return sentinel && unit.last ? page_floor(unit.end - 1) : unit.end;
}

/// Pushes the unit up to `end`; false if the kernel refused.
bool Staging::push_pages(const Unit& unit, uint64_t end) {
  if (end <= unit.begin) return true;
  const uint64_t inside = unit.begin - catalog_.range(*unit.chunk).offset;
  const Status pushed = pages_.push(unit.file, unit.begin, unit.data->block.slices(inside, end - unit.begin));
  (pushed ? metrics_.staging_pushed_bytes : metrics_.staging_push_failures)
      .add(pushed ? end - unit.begin : 1);
  return pushed.ok();
}

// Pushes one unit; with the last one of a sample, says what became of the sample.
void Staging::push(Lane& lane, const Unit& unit) {
  const uint32_t sample = lane.horizon.sample_at(unit.position);
  const bool there = lane.keeps_all && lane.in_page_cache[sample];
  const bool sentinel = unit.last && is_sentinel(lane, unit.position, unit.chunk || there);
  if (!unit.chunk) {
    if (sentinel) leave_sentinel(lane, unit.position);
    lane.complete = true;
    return;
  }
  const uint64_t end = pushed_end(unit, sentinel);
  const uint64_t inside = unit.begin - catalog_.range(*unit.chunk).offset;
  if (sentinel && !unit.failed) {
    tails_.keep(unit.file, end, unit.data->block.slices(inside + end - unit.begin, unit.end - end));
  }
  if (unit.failed) {
    lane.complete = false;
  } else {
    lane.complete = push_pages(unit, end) && lane.complete;
  }
  if (!unit.last) return;
  metrics_.staging_pushed.add();
  if (sentinel) leave_sentinel(lane, unit.position);
  if (lane.keeps_all && lane.complete) lane.in_page_cache[sample] = true;
  lane.complete = true;
}

void Staging::leave_sentinel(Lane& lane, uint64_t position) {
  leave_open(lane, position);
  lane.sentinels.insert(position);
  metrics_.staging_sentinels.add();
}

// A sentinel lacks its last page, also when an earlier reader or plan has left it in the page cache.
void Staging::leave_open(Lane& lane, uint64_t position) {
  const uint32_t sample = lane.horizon.sample_at(position);
  const SampleIndex& index = lane.run->index();
  if (index.range_count(sample) == 0) return;
  const ByteRange last = index.range(sample, index.range_count(sample) - 1);
  if (last.length == 0) return;
  const uint64_t end = last.offset + last.length;
  pages_.drop(last.file, page_floor(end - 1), kPageSize);
  if (used_within(lane, sample, lane.safe, lane.front)) lane.open_again.push_back(position);
}

// A READ that was under way when a page was dropped brings it back; it has ended when safe has passed it.
void Staging::leave_open_again(Lane& lane) {
  for (const uint64_t position : std::exchange(lane.open_again, {})) {
    if (position < lane.front) continue;
    if (used_within(lane, lane.horizon.sample_at(position), lane.safe, lane.front)) {
      lane.open_again.push_back(position);
    } else {
      leave_open(lane, position);
    }
  }
}

}  // namespace clairfs
