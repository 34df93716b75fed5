// The numbers of a mount as people and programs read them: `status` and `stats.json`. For `metrics` see
// prometheus.h.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "fs/control/troubles.h"

namespace clairfs {

/// The facts of a report besides the counters. Constant while mounted.
struct MountInfo {
  std::string source;
  std::string mountpoint;
  std::string commit;          ///< that was built; empty if not known
  std::string io_backend;      ///< "uring" or "threads"
  std::string catalog_origin;  ///< how the catalog came about, for people
  std::string catalog_reason;  ///< why it had to be scanned; may name files, so for the mount's user only
  std::string log_file;        ///< empty: standard error
  std::vector<std::string> nvme_directories;
  std::string control_socket;  ///< name in the abstract namespace
  pid_t pid = 0;
  std::chrono::steady_clock::time_point started;
};

/// For people: what is mounted, how full the tiers are, where reads were answered from, what went wrong.
/// `plans` is PlanManager::text(); `job` is what there is to say of the other nodes, empty without any.
std::string status_text(const MountInfo& info, const Metrics& metrics, const std::string& plans,
                        const std::string& job = "", const std::vector<Trouble>& troubles = {});

/// One object; each metric's path nested at its dots. Counters and gauges are numbers; a metric in
/// nanoseconds is given as `<path>_seconds`; a histogram is {count, sum_seconds, p50_seconds, p99_seconds}.
/// Besides `daemon` {pid, version, commit, uptime_seconds, control_socket}, `source`, `mountpoint`, `io`, and
/// `plan_list`, which is `plans` (PlanManager::json()), and `troubles`, objects {kind, count, text, first};
/// `first` is missing where it is not known. `job` is a JSON object whose members are added.
std::string stats_json(const MountInfo& info, const Metrics& metrics, const std::string& plans,
                       const std::string& job = "{}", const std::vector<Trouble>& troubles = {});

}  // namespace clairfs
