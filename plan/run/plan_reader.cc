#include "plan/run/plan_reader.h"

#include <algorithm>
#include <atomic>
#include <utility>

namespace clairfs {
namespace {

// Positions beyond the reorder window in which the tracker may still look for a late open: two sentinels that
// went unseen, and what it keeps of the latest observations.
constexpr uint64_t kMargin = 1024;
// Epochs of less than that many margins are short: three of them hardly take memory.
constexpr uint64_t kShort = 8;

// A number that no order of this process had before.
OrderId next_order() {
  static std::atomic<uint32_t> last{0};
  return OrderId(++last);
}

}  // namespace

PlanReader::PlanReader(std::shared_ptr<const SampleIndex> index, const Ways& ways, std::optional<Epoch> last)
    : order_(next_order()),
      index_(std::move(index)),
      last_(last),
      streams_(ways.streams),
      tracker_(ways.reorder_window, last, ways.leap) {}

Status PlanReader::begin(Epoch first, const MakeEpoch& make) {
  const auto planned = plan_epoch(first, 0, make);
  if (!planned) return planned.error();
  Timeline timeline(index_);
  timeline.append(*planned);
  publish(std::move(timeline));
  return {};
}

Result<std::shared_ptr<const PlannedEpoch>> PlanReader::plan_epoch(Epoch epoch, uint64_t base,
                                                                   const MakeEpoch& make) {
  auto planned = make(epoch);
  if (!planned) return planned.error();
  planned->base = base;
  tracker_.add_epoch(planned->positions, base);
  return std::shared_ptr<const PlannedEpoch>(std::make_shared<PlannedEpoch>(std::move(*planned)));
}

void PlanReader::publish(Timeline timeline) {
  const Epoch last = timeline.last();
  timeline.set_complete(last_ && *last_ <= last);
  MutexLock lock(mutex_);
  timeline_ = std::move(timeline);
}

Timeline PlanReader::timeline() const {
  MutexLock lock(mutex_);
  return timeline_;
}

// The epoch before the reader's is kept while opens may still come late and pages wait to be dropped; the one
// after it is not needed before that.
PlanReader::Wanted PlanReader::wanted() const {
  const uint64_t margin = tracker_.reorder_window() + kMargin;
  const uint64_t safe = tracker_.position();
  Wanted want;
  want.current = tracker_.high_water_epoch();
  MutexLock lock(mutex_);
  const Epoch first = timeline_.first();
  const Epoch last = timeline_.last();
  want.elsewhere = want.current < first || last < want.current;
  if (want.elsewhere) {
    want.next = true;
    return want;
  }
  const PlannedEpoch& here = timeline_.epoch(want.current);
  const bool is_short = here.length() < kShort * margin;
  const bool well_in = safe >= here.base + margin;
  want.keep = (well_in && !is_short) || want.current == first ? want.current : Epoch(want.current.value - 1);
  want.drop = first < want.keep;
  want.next = !timeline_.complete() && last == want.current && (is_short || well_in || want.current == first);
  return want;
}

bool PlanReader::wants_preparation() const {
  const Wanted want = wanted();
  return want.elsewhere || want.drop || want.next;
}

void PlanReader::drop_first(Timeline& timeline) {
  tracker_.drop_epoch(timeline.first());
  timeline.drop_first();
}

// The timeline is contiguous. A reader that was found somewhere else altogether begins a new one there.
Result<bool> PlanReader::prepare(const MakeEpoch& make) {
  const Wanted want = wanted();
  if (!want.elsewhere && !want.drop && !want.next) return false;
  Timeline timeline = this->timeline();
  if (want.elsewhere) {
    auto planned = plan_epoch(want.current, timeline.end(), make);
    if (!planned) return planned.error();
    while (!timeline.empty()) drop_first(timeline);
    timeline.append(std::move(*planned));
  }
  while (want.drop && timeline.first() < want.keep) drop_first(timeline);
  publish(timeline);  // frees what is not needed before more is made
  const Epoch next(want.current.value + 1);
  if (want.next && (!last_ || next <= *last_)) {
    auto planned = plan_epoch(next, timeline.end(), make);
    if (!planned) return planned.error();
    timeline.append(std::move(*planned));
    publish(timeline);
  }
  return true;
}

uint64_t PlanReader::memory_bytes() const {
  MutexLock lock(mutex_);
  const uint64_t seen = (timeline_.end() - timeline_.begin()) / 8;  // the tracker's bit for each position
  return timeline_.memory_bytes() + seen;
}

}  // namespace clairfs
