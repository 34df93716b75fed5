#include "cache/source/concurrency_limit.h"

namespace clairfs {

namespace {

// Rounds of the limit in a window: four smooth out single slow operations and still adapt within a second or
// so. Two tell whether it doubled what comes, and 64 at once are reached after eight rounds.
constexpr unsigned kRounds = 4;
constexpr unsigned kStartRounds = 2;

// Twice as many at once that bring less than half as much again are a queue, for the most part.
constexpr double kDoublingPays = 1.5;

}  // namespace

void ConcurrencyLimit::completed(uint64_t bytes, bool saturated, TimePoint now) {
  if (window_count_ == 0) {
    window_start_ = now;
    window_saturated_ = true;
  }
  ++window_count_;
  window_bytes_ += bytes;
  window_saturated_ = window_saturated_ && saturated;
  if (window_count_ < (starting_ ? kStartRounds : kRounds) * limit_) return;

  const double seconds = std::chrono::duration<double>(now - window_start_).count();
  if (window_saturated_ && seconds > 0) adapt(static_cast<double>(window_bytes_) / seconds);
  window_count_ = 0;
  window_bytes_ = 0;
}

void ConcurrencyLimit::adapt(double rate) {
  if (starting_ && rate >= kDoublingPays * last_rate_ && limit_ < most_) {
    limit_ = std::min(2 * limit_, most_);
  } else if (starting_) {
    starting_ = false;  // and the limit stays: two rounds may err, and climbing takes longer
  } else {
    if (rate < last_rate_) direction_ = -direction_;
    // A quarter at a time: from 8 to 64 in ten windows, yet small enough not to overshoot by much.
    const int step = std::max(1, static_cast<int>(limit_) / 4) * direction_;
    const int next = static_cast<int>(limit_) + step;
    limit_ = static_cast<unsigned>(std::clamp(next, static_cast<int>(least_), static_cast<int>(most_)));
  }
  last_rate_ = rate;
}

}  // namespace clairfs
