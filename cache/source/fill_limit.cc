#include "cache/source/fill_limit.h"

#include <algorithm>
#include <chrono>

namespace clairfs {
namespace {

// Operations that are judged together, or as many as may be under way, if that is more. Their lower quartile
// counts: a disk's latencies differ, and threads that find no processor see some ends late.
constexpr size_t kJudged = 16;

// Operations that take so many times as long wait for others as long as for themselves.
constexpr double kSlow = 2;

// What an operation costs beside its bytes, in bytes, so that those of all sizes can be compared: 1 ms at 250
// MB/s. Where that is a tenth or ten times as much the costs of 64 KiB and of 1 MiB differ by a factor of
// three, and fills that follow other sizes begin with few.
constexpr double kOperationBytes = 256 << 10;

// The least cost is forgotten after one to two of these, since a source may become slower for good. RFC 6817
// recommends ten minutes: other programs are seldom busy for longer without a pause.
constexpr auto kPeriod = std::chrono::minutes(10);

}  // namespace

bool FillLimit::is_slow(double cost, TimePoint now) {
  if (now - period_begin_ >= kPeriod) {
    least_before_ = least_cost_;
    least_cost_ = 0;
    period_begin_ = now;
  }
  least_cost_ = least_cost_ > 0 ? std::min(least_cost_, cost) : cost;
  const double least = least_before_ > 0 ? std::min(least_cost_, least_before_) : least_cost_;
  return cost > kSlow * least;
}

void FillLimit::completed(uint64_t bytes, Duration took, TimePoint now) {
  if (begun_before_ > 0) {
    --begun_before_;
    return;
  }
  costs_.push_back(std::chrono::duration<double>(took).count() /
                   (static_cast<double>(bytes) + kOperationBytes));
  if (costs_.size() < std::max<size_t>(kJudged, limit_)) return;
  const auto quartile = costs_.begin() + static_cast<std::ptrdiff_t>(costs_.size() / 4);
  std::nth_element(costs_.begin(), quartile, costs_.end());
  begun_before_ = limit_;
  limit_ = is_slow(*quartile, now) ? std::max(limit_ / 2, kLeast) : std::min(limit_ + 1, most_);
  costs_.clear();
}

}  // namespace clairfs
