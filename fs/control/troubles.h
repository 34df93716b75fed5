// The troubles of a mount, now and since it was made: one list behind `status`, `top`, `stats.json` and
// `metrics`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "plan/plan_manager.h"

namespace clairfs {

/// Each kind of trouble has one code, which monitoring may rely on.
struct Trouble {
  std::string code;  ///< "reads_failed"
  uint64_t count = 1;
  std::string text;   ///< one line that begins with the count, or with the name of what is in trouble
  std::string first;  ///< the first, or latest, that it happened to; empty: not known, or not for the asker
};

/// The first file of each kind whose read failed. Thread-safe.
class FailedReads {
 public:
  explicit FailedReads(const Catalog& catalog) : catalog_(catalog) {}

  /// A READ of `file` was answered with errno `code`.
  void record(FileId file, int code);
  /// "a/b.png (Input/output error)"; empty: none failed.
  std::string first_failed() const;
  /// The first file that was refused because it has changed since the scan (ESTALE); empty: none.
  std::string first_refused() const;

 private:
  const Catalog& catalog_;
  mutable Mutex mutex_;  // leaf
  std::string failed_ GUARDED_BY(mutex_);
  std::string refused_ GUARDED_BY(mutex_);
};

/// The names that go with the counters; each may be empty.
struct TroubleNames {
  std::string unreadable{};   ///< a folder, not all of which could be read by the scan
  std::string failed_read{};  ///< FailedReads::first_failed()
  std::string refused_read{};
  std::string dirty_writer{};  ///< DirtyPages::text()
  std::string source_error{};  ///< as PfsTroubles has it; so the next two
  std::string stale{};
  std::string silent{};
  // NVMe directories; all but the first with the reason: "/nv1: the directory has been deleted".
  std::vector<std::string> full_disks{};
  std::vector<std::string> nvme_silent{};
  std::vector<std::string> nvme_cut_short{};
  std::vector<std::string> nvme_errors{};
  std::vector<std::string> nvme_damaged{};
  std::vector<std::string> nvme_disabled{};
};

/// The worst first. `plans` as PlanManager::briefs() gives them.
std::vector<Trouble> list_troubles(const Metrics& metrics, const std::vector<PlanBrief>& plans,
                                   const TroubleNames& names);

/// The same for users who may not learn names of files, folders and plans.
std::vector<Trouble> without_names(const Metrics& metrics, const std::vector<PlanBrief>& plans);

/// The first folder that the scan could not read all of; empty: none. Goes over the whole catalog.
std::string first_unreadable(const Catalog& catalog);

}  // namespace clairfs
