// A tracker's report on itself.
#include <algorithm>

#include <fmt/format.h>

#include "plan/tracking/tracker.h"

namespace clairfs {

std::string_view to_string(TrackerState state) {
  switch (state) {
    case TrackerState::waiting:
      return "waiting";
    case TrackerState::following:
      return "following";
    case TrackerState::suspended:
      return "suspended";
    case TrackerState::finished:
      return "finished";
  }
  return "unknown";
}

bool follows(const TrackerStatus& status) {
  constexpr uint64_t kStrays = 20;  // one observation in so many, as plans are made to withstand
  // Chance and what others read do not look like a reader for so long.
  constexpr uint64_t kLong = 8 * kSightings;
  if (status.state == TrackerState::suspended || status.in_order == 0) return false;
  return (status.out_of_order - status.after_end) * kStrays <= status.in_order ||
         (status.in_order_since >= kLong && status.out_of_order_since * kStrays <= status.in_order_since);
}

std::string hint_of_epoch_again(Epoch epoch) {
  return fmt::format("matches epoch {} again: set_epoch is not called, or the job was started again",
                     epoch.value);
}

TrackerStatus combined(const TrackerStatus& a, const TrackerStatus& b) {
  using enum TrackerState;
  TrackerStatus sum = a.high_water.epoch < b.high_water.epoch ? b : a;
  const TrackerStatus& other = a.high_water.epoch < b.high_water.epoch ? a : b;
  const auto either = [&](TrackerState state) { return a.state == state || b.state == state; };
  if (a.state != b.state) sum.state = either(suspended) ? suspended : following;
  const auto add = [epoch = sum.high_water.epoch](PlanPosition& to, const PlanPosition& place) {
    if (to.epoch != epoch) to = {epoch, 0};
    if (place.epoch == epoch) to.position += place.position;
  };
  add(sum.position, other.position);
  add(sum.high_water, other.high_water);
  sum.samples_per_second += other.samples_per_second;
  sum.reorder_window = std::max(sum.reorder_window, other.reorder_window);
  sum.in_order += other.in_order;
  sum.out_of_order += other.out_of_order;
  sum.after_end += other.after_end;
  sum.repeated += other.repeated;
  sum.passed += other.passed;
  sum.longest_stray = std::max(sum.longest_stray, other.longest_stray);
  sum.in_order_since += other.in_order_since;
  sum.out_of_order_since += other.out_of_order_since;
  sum.realignments += other.realignments;
  sum.suspensions += other.suspensions;
  return sum;
}

TrackerStatus Tracker::status() const {
  const MutexLock lock(mutex_);
  TrackerStatus status = totals_;
  status.state = shown();
  status.position = epochs_.position_of(epoch_, safe());
  status.high_water = epochs_.position_of(epoch_, next());
  status.samples_per_second = progress_.samples_per_second();
  status.reorder_window = static_cast<uint64_t>(progress_.reorder_window());
  status.passed = progress_.passed();
  status.longest_stray = progress_.longest_stray();
  status.first_difference = departure_.first_difference();
  status.divergence = departure_.divergence();
  return status;
}

bool Tracker::may_come_to(std::span<const uint32_t> samples) const {
  const MutexLock lock(mutex_);
  return may_be_beyond() || epochs_.have(samples);
}

std::string Tracker::describe_jump(const Found& found) const {
  const auto& [epoch, chain] = found;
  const PlanPosition from = departure_.place();
  const int64_t reorder_window = progress_.planned_slack();
  const bool at_start =
      chain.low < static_cast<uint32_t>(3 * reorder_window + static_cast<int64_t>(kSightings));
  if (state_ == TrackerState::waiting) {
    return fmt::format("started at epoch {} position {}", epoch.value, chain.low);
  }
  if (epoch == from.epoch) {
    if (at_start && chain.top < from.position) return fmt::format("epoch {} was restarted", epoch.value);
    return fmt::format("{} within epoch {}", chain.top < from.position ? "went back" : "skipped ahead",
                       epoch.value);
  }
  if (shown() == TrackerState::finished) {
    return fmt::format("epoch {} was read again after the plan's end", epoch.value);
  }
  if (epoch.value == from.epoch.value + 1 && at_start) {
    return fmt::format("epoch {} began before the end of epoch {}", epoch.value, from.epoch.value);
  }
  const bool boundary = from.position <= 3 * reorder_window || from.position == end_ - begin_;
  if (epoch <= from.epoch && at_start && boundary) return hint_of_epoch_again(epoch);
  if (epoch < from.epoch && at_start) {
    return fmt::format("the job was started again, at epoch {}", epoch.value);
  }
  return fmt::format("matches epoch {} (expected epoch {}): is set_epoch called?", epoch.value,
                     from.epoch.value);
}

}  // namespace clairfs
