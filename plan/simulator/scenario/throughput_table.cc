#include "plan/simulator/scenario/throughput_table.h"

#include <algorithm>
#include <cerrno>
#include <cmath>

namespace clairfs {

Result<ThroughputTable> ThroughputTable::make(std::vector<std::pair<double, double>> points) {
  if (points.empty()) return Error{EINVAL, "want at least one pair such as {1 = 66}"};
  std::sort(points.begin(), points.end());
  for (size_t at = 0; at < points.size(); ++at) {
    const auto [users, rate] = points[at];
    if (!(users >= 1)) return Error{EINVAL, "threads or clients are counted from 1"};
    if (!(rate > 0) || !std::isfinite(rate)) return Error{EINVAL, "a throughput is above 0 MB/s"};
    if (at > 0 && users == points[at - 1].first)
      return Error{EINVAL, "a number of threads or clients comes twice"};
  }
  ThroughputTable table;
  table.points_ = std::move(points);
  return table;
}

double ThroughputTable::at(double users) const {
  const auto above = std::upper_bound(points_.begin(), points_.end(), users,
                                      [](double value, const auto& point) { return value < point.first; });
  if (above == points_.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == points_.end()) return below->second;
  const double share = (users - below->first) / (above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace clairfs
