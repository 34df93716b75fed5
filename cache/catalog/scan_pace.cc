#include "cache/catalog/scan_pace.h"

#include <algorithm>

#include "cache/tasks/doubling.h"

namespace clairfs {
namespace {

// Long enough for some hundred answers of 1 ms each, short enough that 64 threads run after half a second.
constexpr auto kPeriod = std::chrono::milliseconds(80);

}  // namespace

void ScanPace::observe(uint64_t done, TimePoint now) {
  const Duration passed = now - since_;
  if (begun_ && passed < kPeriod) return;
  if (begun_ && growing_) {
    const double rate = static_cast<double>(done - done_) / in_seconds(passed);
    growing_ = threads_ < most_ && rate >= kDoublingPays * last_rate_;
    if (growing_) threads_ = std::min(2 * threads_, most_);
    last_rate_ = rate;
  }
  begun_ = true;
  done_ = done;
  since_ = now;
}

}  // namespace clairfs
