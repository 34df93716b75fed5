#include "cache/source/fill_limit.h"

#include <algorithm>
#include <bit>
#include <chrono>

namespace clairfs {
namespace {

// Operations that are judged together, or as many as may be under way, if that is more. Their lower quartile
// counts: a disk's latencies differ, and threads that find no processor see some ends late.
constexpr size_t kJudged = 16;

// The largest size of the first class. The classes above it go up to 4 MiB, the most that are read at once.
constexpr uint64_t kLeastClass = 64 << 10;

// Operations that take so many times as long wait for others as long as for themselves.
constexpr double kSlow = 2;

// Windows, after the first, whose median is a candidate for the least. The least of single windows would be
// one in which operations were quick by chance, or came from a server's cache: then all later ones seem slow.
// In a model fills have all places where up to a fifth of the operations take a tenth of the time, or where
// times differ by as much as lognormal ones with a sigma of 1. The first window counts by itself: when a job
// begins, its source is seldom idle for longer.
constexpr size_t kWindows = 8;

// What an operation costs beside its bytes, in bytes, so that those of a class can be compared: 1 ms at 250
// MB/s. Where that is a tenth or ten times as much, costs in a class differ by no more than a half.
constexpr double kOperationBytes = 256 << 10;

// The least cost is forgotten after one to two of these, since a source may become slower for good. RFC 6817
// recommends ten minutes: other programs are seldom busy for longer without a pause.
constexpr auto kPeriod = std::chrono::minutes(10);

double quantile(std::vector<double>& values, size_t divisor) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / divisor);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

bool FillLimit::is_slow(SizeClass& size, double cost, TimePoint now) {
  if (now - size.period_begin >= kPeriod) {
    size.least_before = now - size.period_begin < 2 * kPeriod ? size.least : 0;
    size.least = 0;
    size.period_begin = now;
  }
  const auto lesser = [](double a, double b) { return a > 0 && b > 0 ? std::min(a, b) : std::max(a, b); };
  size.windows.push_back(cost);
  const bool first = size.least == 0 && size.least_before == 0;
  if (first || size.windows.size() == kWindows) {
    size.least = lesser(size.least, quantile(size.windows, 2));
    size.windows.clear();
  }
  return cost > kSlow * lesser(size.least, size.least_before);
}

void FillLimit::completed(uint64_t bytes, Duration took, TimePoint now) {
  if (begun_before_ > 0) {
    --begun_before_;
    return;
  }
  SizeClass& size = sizes_[std::min<size_t>(std::bit_width(bytes / kLeastClass), sizes_.size() - 1)];
  size.costs.push_back(std::chrono::duration<double>(took).count() /
                       (static_cast<double>(bytes) + kOperationBytes));
  if (size.costs.size() < std::max<size_t>(kJudged, limit_)) return;
  begun_before_ = limit_;
  const bool slow = is_slow(size, quantile(size.costs, 4), now);
  limit_ = slow ? std::max(limit_ / 2, kLeast) : std::min(limit_ + 1, most_);
  for (SizeClass& each : sizes_) each.costs.clear();
}

}  // namespace clairfs
