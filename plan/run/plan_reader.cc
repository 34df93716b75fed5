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

/// A number that no order of this process had before.
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
  Horizon horizon;
  horizon.index = index_;
  horizon.epochs.push_back(*planned);
  publish(std::move(horizon));
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

void PlanReader::publish(Horizon horizon) {
  const Epoch last = horizon.last();
  horizon.complete = last_ && *last_ <= last;
  MutexLock lock(mutex_);
  horizon_ = std::move(horizon);
}

Horizon PlanReader::horizon() const {
  MutexLock lock(mutex_);
  return horizon_;
}

// The epoch before the reader's is kept while opens may still come late and pages wait to be dropped; the one
// after it is not needed before that.
PlanReader::Wanted PlanReader::wanted() const {
  const uint64_t margin = tracker_.reorder_window() + kMargin;
  const uint64_t safe = tracker_.position();
  Wanted want;
  want.current = tracker_.high_water_epoch();
  MutexLock lock(mutex_);
  const Epoch first = horizon_.first();
  const Epoch last = horizon_.last();
  want.elsewhere = want.current < first || last < want.current;
  if (want.elsewhere) {
    want.next = true;
    return want;
  }
  const PlannedEpoch& here = *horizon_.epochs[want.current.value - first.value];
  const bool is_short = here.sequence->length() < kShort * margin;
  const bool well_in = safe >= here.base + margin;
  want.keep = (well_in && !is_short) || want.current == first ? want.current : Epoch(want.current.value - 1);
  want.drop = first < want.keep;
  want.next = !horizon_.complete && last == want.current && (is_short || well_in || want.current == first);
  return want;
}

bool PlanReader::wants_preparation() const {
  const Wanted want = wanted();
  return want.elsewhere || want.drop || want.next;
}

// The horizon is contiguous. A reader that was found somewhere else altogether begins a new one there.
Result<bool> PlanReader::prepare(const MakeEpoch& make) {
  const Wanted want = wanted();
  if (!want.elsewhere && !want.drop && !want.next) return false;
  Horizon horizon = this->horizon();
  if (want.elsewhere) {
    auto planned = plan_epoch(want.current, horizon.end(), make);
    if (!planned) return planned.error();
    for (const auto& old : horizon.epochs) tracker_.drop_epoch(old->epoch());
    horizon.epochs = {std::move(*planned)};
  }
  while (want.drop && horizon.first() < want.keep) {
    tracker_.drop_epoch(horizon.first());
    horizon.epochs.erase(horizon.epochs.begin());
  }
  publish(horizon);  // what is not needed is let go of before more is made
  const Epoch next(want.current.value + 1);
  if (want.next && (!last_ || next <= *last_)) {
    auto planned = plan_epoch(next, horizon.end(), make);
    if (!planned) return planned.error();
    horizon.epochs.push_back(std::move(*planned));
    publish(horizon);
  }
  return true;
}

uint64_t PlanReader::memory_bytes() const {
  MutexLock lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& epoch : horizon_.epochs) {
    bytes += epoch->memory_bytes();
    bytes += epoch->sequence->length() / 8;  // what the tracker has seen of it
  }
  return bytes;
}

}  // namespace clairfs
