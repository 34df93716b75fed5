#include "cache/source/concurrency_limit.h"

#include "cache/tasks/doubling.h"

namespace clairfs {

namespace {

// Rounds of the limit in a window. One tells whether twice as many are served at once: 64 are reached after
// eight rounds, for each change costs another one until what began before it has ended. Climbing looks twice.
constexpr size_t kStartRounds = 1;
constexpr size_t kRounds = 2;

// Windows in a row in which it did not pay, since one errs too often where other programs want the
// processors.
constexpr unsigned kInVain = 2;

// A step that loses less than a twentieth is within what two windows differ by anyway.
constexpr double kNoLoss = 0.95;

}  // namespace

void ConcurrencyLimit::completed(Duration took, bool saturated) {
  if (begun_before_ > 0) {
    --begun_before_;
    return;
  }
  if (!saturated) return;
  took_.push_back(took);
  if (took_.size() < (starting_ ? kStartRounds : kRounds) * limit_) return;

  const auto quartile = took_.begin() + static_cast<std::ptrdiff_t>(took_.size() / 4);
  std::nth_element(took_.begin(), quartile, took_.end());
  const double seconds = std::chrono::duration<double>(*quartile).count();
  took_.clear();
  if (seconds > 0) adapt(limit_ / seconds);
}

void ConcurrencyLimit::adapt(double rate) {
  if (!starting_) {
    if (limit_ == least_) {
      direction_ = 1;  // or a source that has nothing else to do any more would never be asked for more
    } else if (rate < kNoLoss * last_rate_) {
      direction_ = -direction_;
    }
    last_rate_ = rate;
    // A quarter at a time: from 8 to 64 in ten windows, yet small enough not to overshoot by much.
    const int step = std::max(1, static_cast<int>(limit_) / 4) * direction_;
    set(static_cast<unsigned>(std::max(0, static_cast<int>(limit_) + step)));
  } else if (rate >= kDoublingPays * last_rate_) {
    in_vain_ = 0;
    last_rate_ = rate;
    starting_ = limit_ < most_;
    set(2 * limit_);
  } else if (++in_vain_ == kInVain) {
    starting_ = false;
    last_rate_ = rate;
    direction_ = -1;
  }
}

void ConcurrencyLimit::set(unsigned limit) {
  begun_before_ = limit_;
  limit_ = std::clamp(limit, least_, most_);
}

}  // namespace clairfs
