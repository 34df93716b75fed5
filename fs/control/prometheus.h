// MOUNT/.clairfs/metrics: the numbers of a mount in Prometheus's text format 0.0.4.
//
// Names follow Prometheus's rules (prometheus.io/docs/practices/naming): what only tells apart is a label,
// the unit comes last, counters end in _total. `tiers.ram.bytes` of stats.json is
// clairfs_tier_bytes{tier="ram"}, `fuse.requests.read` is clairfs_fuse_requests_total{op="read"}; but
// `fuse.requests.refused`, which is no operation, is clairfs_fuse_requests_refused_total. Every
// series has the labels `mount` and `dataset`, so that the files of several mounts can be joined.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cache/base/metrics.h"
#include "fs/control/reports.h"
#include "fs/control/troubles.h"
#include "plan/plan_manager.h"

namespace clairfs {

/// Name and label of a metric: {"clairfs_tier_bytes", "tier", "ram"}; without a label the last two are empty.
struct SeriesName {
  std::string name;
  std::string label;
  std::string value;
};
SeriesName series_name(const MetricInfo& metric);

/// The labels that every series of a mount has: `mount="/mnt",dataset="/pfs"`, escaped as the format wants
/// it.
std::string mount_labels(const std::string& mountpoint, const std::string& source);

/// Every metric of metric_table(), and besides clairfs_build_info, clairfs_start_time_seconds,
/// clairfs_plan_state (1 for the state that a plan is in, also "indexing" and "failed"; where a plan is in
/// force and another text is to replace it, for both), clairfs_plan_ahead_samples of those in force, and
/// clairfs_troubles, the counts of `troubles` by code.
std::string prometheus_text(const MountInfo& info, const Metrics& metrics,
                            const std::vector<PlanBrief>& plans, const std::vector<Trouble>& troubles);

}  // namespace clairfs
