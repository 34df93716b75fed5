// Counts how often the nodes of a job will read each sample, and from where, for `clairfs plan stats`.
//
// With full randomisation the reads of a sample by one of N nodes in E epochs are binomial with mean E/N
// (thesis, section 3.2.1; Dryden et al., SC'21, section 3). That some samples are read much more often is
// what placement lives on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "plan/placement/table.h"
#include "plan/simulator/model/access_frequency.h"

namespace clairfs {

struct PlanStatsRequest {
  std::string plan;                        ///< as parse_plan() takes it, with epochs; root=DIR or n=SAMPLES
  std::vector<double> deltas = {0.1};      ///< how far above the mean; at least 0
  std::optional<NodeCapacity> capacity{};  ///< of every node; then the placement is looked at too
  uint64_t sample_bytes = 0;               ///< of each sample, where the plan names no root
};

struct PlanStats {
  /// Samples that a node reads more than (1 + delta) times the mean.
  struct Tail {
    double delta = 0;
    double reads = 0;     ///< (1 + delta) E/N
    double counted = 0;   ///< mean over the nodes that were counted
    double expected = 0;  ///< by the binomial distribution
  };
  /// Bytes that all nodes read over the job.
  struct Reads {
    double local_ram = 0;
    double local_nvme = 0;
    double peer = 0;
    double pfs = 0;      ///< without home: every time
    double prefill = 0;  ///< of local and peer: what its home reads from the PFS, once

    double all() const { return local_ram + local_nvme + peer + pfs; }
  };

  uint64_t samples = 0;
  uint32_t nodes = 0;
  uint32_t epochs = 0;
  uint32_t counted_nodes = 0;  ///< the first of them, as many as half a GiB of counters allows
  double mean = 0;             ///< reads of a sample by a node
  uint32_t least = 0;          ///< of the nodes counted
  uint32_t most = 0;
  AccessFrequencies frequencies;  ///< mean over the nodes counted
  std::vector<Tail> tails;
  std::optional<Reads> placed;
};

/// Takes E shuffles of the dataset, and as many again for the placement. Errors: EINVAL naming the key and
/// what would be right; errno of a scan.
Result<PlanStats> plan_stats(const PlanStatsRequest& request, Logger& log);

/// For people; ends in a newline.
std::string plan_stats_text(const PlanStats& stats);
std::string plan_stats_json(const PlanStats& stats);
/// A picture: an SVG document.
std::string plan_stats_plot(const PlanStats& stats);

}  // namespace clairfs
