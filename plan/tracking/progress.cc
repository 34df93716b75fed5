#include "plan/tracking/progress.h"

#include <algorithm>
#include <cmath>

namespace clairfs {
namespace {

// Opens in a row from before safe() that show the high-water mark to have been a stray access, not the
// reader.
constexpr uint32_t kRetreat = 8;
// Of so many opens before them, as many near the high-water mark show that it is the reader's: strays come
// there seldom, since few of all that they may hit lie there.
constexpr size_t kNewestOpens = 32;
// Late opens, less a quarter for every one that is not, from which on they are ranks that have drifted apart.
constexpr double kDrift = 3;
constexpr double kDriftForgiven = 0.25;
// Late opens widen the reorder window to one part in so many of the epoch, by which the order score can still
// tell another order from the plan's.
constexpr int64_t kWidestPart = 8;

// The rate is the mean of the first so many samples, and then averaged over about as many; a pause counts as
// at most kPause times what they took.
constexpr double kRateSamples = 256;
constexpr double kPause = 8;

}  // namespace

Progress::Progress(uint64_t reorder_window)
    : planned_slack_(std::max<int64_t>(static_cast<int64_t>(reorder_window), 1)),
      reorder_window_(planned_slack_) {}

void Progress::begin(int64_t next) {
  high_water_ = confirmed_high_water_ = next - 1;
}

void Progress::set_epoch_length(int64_t length) {
  widest_ = length / kWidestPart;
}

Progress::Band Progress::band(int64_t unseen) const {
  const int64_t leap = planned_slack_ + unseen;
  return {high_water_ + 1 - reorder_window_ - leap, high_water_ + leap};
}

int64_t Progress::note(int64_t position, TimePoint now) {
  note_late(position);
  newest_.push_back(position);
  if (newest_.size() > kNewestOpens) newest_.pop_front();
  const int64_t advanced = std::max<int64_t>(position - high_water_, 0);
  if (advanced == 0) {
    confirmed_high_water_ = std::max(confirmed_high_water_, position);
    return 0;
  }
  passed_ += static_cast<uint64_t>(advanced);
  note_pace(advanced, now);
  confirmed_high_water_ = high_water_;
  high_water_ = position;
  return advanced;
}

void Progress::note_late(int64_t position) {
  longest_stray_ =
      std::max(longest_stray_, static_cast<uint64_t>(std::max<int64_t>(high_water_ - position, 0)));
  if (position > high_water_ - reorder_window_) {
    if (late_score_ >= kDrift) grow();
    late_score_ = std::max(late_score_ - kDriftForgiven, 0.0);
    late_in_a_row_ = 0;
    return;
  }
  late_low_ = late_score_ == 0 ? position : std::min(late_low_, position);
  late_top_ = late_in_a_row_ == 0 ? position : std::max(late_top_, position);
  late_score_ += 1;
  if (++late_in_a_row_ < kRetreat) return;
  late_in_a_row_ = 0;
  late_score_ = 0;
  if (is_supported()) return grow();
  high_water_ = confirmed_high_water_ = late_top_;
}

void Progress::grow() {
  reorder_window_ = std::max(reorder_window_, std::min(high_water_ + 1 - late_low_, widest_));
}

bool Progress::is_supported() const {
  const auto near =
      std::count_if(newest_.begin(), newest_.end(),
                    [from = high_water_ - reorder_window_](int64_t position) { return position > from; });
  return near >= int64_t{kRetreat};
}

void Progress::note_pace(int64_t positions, TimePoint now) {
  const auto count = static_cast<double>(positions);
  if (advanced_at_ && now > *advanced_at_) {
    double each = in_seconds(now - *advanced_at_) / count;
    if (seconds_per_sample_ > 0) each = std::min(each, kPause * seconds_per_sample_);
    paced_ += count;
    const double weight = std::max(1 - std::exp(-count / kRateSamples), count / paced_);
    seconds_per_sample_ += weight * (each - seconds_per_sample_);
  }
  advanced_at_ = now;
}

void Progress::enter_epoch(int64_t begin) {
  confirmed_high_water_ = std::max(confirmed_high_water_, begin - 1);
  reorder_window_ = planned_slack_ + (reorder_window_ - planned_slack_) / 2;
}

void Progress::jump(int64_t high_water, int64_t second) {
  high_water_ = high_water;
  confirmed_high_water_ = second;
  reorder_window_ = planned_slack_;
  late_low_ = late_top_ = high_water;  // like all positions of before: shift() moves those of one epoch
  late_in_a_row_ = 0;
  late_score_ = 0;
  newest_.clear();
  advanced_at_.reset();
}

void Progress::widen(uint64_t reorder_window) {
  planned_slack_ = std::max(planned_slack_, static_cast<int64_t>(reorder_window));
  reorder_window_ = std::max(reorder_window_, planned_slack_);
}

void Progress::shift(int64_t by) {
  for (int64_t* const position : {&high_water_, &confirmed_high_water_, &late_low_, &late_top_})
    *position += by;
  for (int64_t& position : newest_) position += by;
}

}  // namespace clairfs
