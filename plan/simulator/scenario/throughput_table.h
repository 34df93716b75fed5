// A measured throughput as a function of how many use it at once: t(gamma), r_j(p), w_j(p) of the papers.
#pragma once

#include <utility>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Linear between the measured points, constant outside of them (thesis, equation 4.1). A value.
class ThroughputTable {
 public:
  ThroughputTable() = default;
  /// `points`: number of threads or clients, MB/s. Errors: EINVAL unless there is a point, counts are at
  /// least 1 and differ, and throughputs are above 0.
  static Result<ThroughputTable> make(std::vector<std::pair<double, double>> points);

  bool empty() const { return points_.empty(); }
  /// MB/s together. REQUIRES: !empty().
  double at(double users) const;
  const std::vector<std::pair<double, double>>& points() const { return points_; }

 private:
  std::vector<std::pair<double, double>> points_;  // ascending by users
};

}  // namespace clairfs
