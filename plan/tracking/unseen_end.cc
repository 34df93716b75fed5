// The end of a plan whose reader passed more unseen than is believed of one that goes on.
#include <algorithm>

#include "plan/tracking/tracker.h"

namespace clairfs {
namespace {

// A reader that reads from the page cache at full speed pauses no longer between two batches, and one that
// trains is seen at every sentinel.
constexpr Duration kEndSilence = std::chrono::seconds(5);

}  // namespace

// The position of the last sample of the epoch that can be seen.
int64_t Tracker::last_to_tell() const {
  return std::min(end_, unseen_from_.value_or(end_)) - 1;
}

void Tracker::note_stray_at_end(std::span<const uint32_t> samples) {
  const int64_t last = last_to_tell();
  silent_.reset();
  stray_at_end_ = false;
  if (last_ != epoch_ || state_ != TrackerState::following || last < begin_) return;
  if (!pushed_ || *pushed_ <= last) return;
  const SequencePositions& order = *epochs_.find(epoch_)->order;
  const auto in_epoch = static_cast<uint32_t>(last - begin_);
  stray_at_end_ = std::any_of(samples.begin(), samples.end(), [&order, in_epoch](uint32_t sample) {
    const std::span<const uint32_t> positions = order.of(sample);
    return std::find(positions.begin(), positions.end(), in_epoch) != positions.end();
  });
}

std::optional<Duration> Tracker::look_for_unseen_end(TimePoint now) {
  const MutexLock lock(mutex_);
  if (!stray_at_end_ || state_ != TrackerState::following) return std::nullopt;
  silent_ = silent_.value_or(now);
  const Duration left = kEndSilence - (now - *silent_);
  if (left > Duration::zero()) return left;
  stray_at_end_ = false;
  progress_.jump(last_to_tell(), last_to_tell());
  state_ = TrackerState::finished;
  return std::nullopt;
}

}  // namespace clairfs
