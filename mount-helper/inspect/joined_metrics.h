// The figures of several mounts as one text of Prometheus's format.
#pragma once

#include <string>
#include <vector>

namespace clairfs {

/// The figures of one mount, as far as it gave them.
struct CollectedMetrics {
  std::string mountpoint;
  std::string source;
  bool answers = false;
  std::string text;  ///< its .clairfs/metrics, where it answers
};

/// All series, those of one name together with one HELP and one TYPE, as the format wants them; and
/// clairfs_up for each mount: 1 if it answers, 0 if its daemon is gone or hangs.
std::string joined_metrics(const std::vector<CollectedMetrics>& mounts);

}  // namespace clairfs
