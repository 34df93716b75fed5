#include "cache/source/concurrency_limit.h"

namespace clairfs {

void ConcurrencyLimit::completed(uint64_t bytes, bool saturated, TimePoint now) {
  if (window_count_ == 0) {
    window_start_ = now;
    window_saturated_ = true;
  }
  ++window_count_;
  window_bytes_ += bytes;
  window_saturated_ = window_saturated_ && saturated;
  // Four rounds of the limit smooth out single slow operations and still adapt within a second or so.
  if (window_count_ < 4 * limit_) return;

  const double seconds = std::chrono::duration<double>(now - window_start_).count();
  if (window_saturated_ && seconds > 0) {
    const double rate = static_cast<double>(window_bytes_) / seconds;
    if (rate < last_rate_) direction_ = -direction_;
    // A quarter at a time: from 8 to 64 in ten windows, yet small enough not to overshoot by much.
    const int step = std::max(1, static_cast<int>(limit_) / 4) * direction_;
    const int next = static_cast<int>(limit_) + step;
    limit_ = static_cast<unsigned>(std::clamp(next, static_cast<int>(least_), static_cast<int>(most_)));
    last_rate_ = rate;
  }
  window_count_ = 0;
  window_bytes_ = 0;
}

}  // namespace clairfs
