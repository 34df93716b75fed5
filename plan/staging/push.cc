// Pushing what has arrived, and leaving sentinels open.
#include <algorithm>
#include <utility>

#include "plan/staging/lane.h"
#include "plan/staging/staging.h"

namespace clairfs {

// Tells the tracker what is about to be pushed, before it is: a reader close behind may pass it unseen at
// once. Where several ranks read, another one may have filled any sentinel a moment ago.
void Staging::announce(Lane& lane) {
  uint64_t end = lane.staged;
  uint64_t units = 0;
  for (const auto& unit : lane.units) {
    if (++units > kPushesPerStep || (unit->chunk && !unit->arrived)) break;
    end = unit->position + 1;
  }
  const uint32_t widest = lane.chooser.widest_gap();
  const uint32_t gap = lane.plan->lanes.size() == 1 ? widest : 2 * widest;
  lane.reader->tracker().set_pushed(end, gap);
}

bool Staging::push_arrived(Lane& lane) {
  lane.chooser.choose_gap({lane.front, lane.staged, lane.fetched, lane.window_bytes, lane.budget});
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
    if (unit->last) hand_on(lane, lane.staged + 1);
  }
  if (lane.staged != before) tell_policy(lane);
  return pushed > 0;
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
  const bool there = lane.plan->ledger->stays(sample);
  const bool elsewhere = staged_elsewhere(lane, sample);  // another rank's read would hide this one's
  const PlannedEpoch* epoch = lane.horizon.epoch_at(unit.position);
  const bool last_of_epoch = unit.position + 1 == epoch->end();
  const bool sentinel =
      unit.last && lane.chooser.choose(unit.position, last_of_epoch, (unit.chunk || there) && !elsewhere);
  if (!unit.chunk || elsewhere) {
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
  if (lane.complete) lane.plan->ledger->note_whole(sample);
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
  const auto page = lane.plan->ledger->sentinel_page(sample);
  if (!page) return;
  pages_.drop(page->file, page->begin, kPageSize);
  if (lane.horizon.uses_within(sample, lane.safe, lane.front)) lane.open_again.push_back(position);
}

// A READ that was under way when a page was dropped brings it back; it has ended when safe has passed it.
void Staging::leave_open_again(Lane& lane) {
  for (const uint64_t position : std::exchange(lane.open_again, {})) {
    if (position < lane.front) continue;
    if (lane.horizon.uses_within(lane.horizon.sample_at(position), lane.safe, lane.front)) {
      lane.open_again.push_back(position);
    } else {
      leave_open(lane, position);
    }
  }
}

}  // namespace clairfs
