#include "fs/control/troubles.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cache/base/escaped.h"
#include "cache/base/plural.h"

namespace clairfs {
namespace {

uint64_t value_of(const Gauge& gauge) {
  return static_cast<uint64_t>(std::max<int64_t>(gauge.value(), 0));
}

// Adds a trouble for each count that is not zero.
struct TroubleList {
  std::vector<Trouble> troubles;

  void add(const char* code, uint64_t count, const char* one, const char* many, std::string first = "") {
    if (count > 0) troubles.push_back({code, count, pluralize(count, one, many), std::move(first)});
  }
};

bool is_suspended(const PlanBrief& plan) {
  return plan.state == TrackerState::suspended;
}

bool has_failed(const PlanBrief& plan) {
  return plan.making == PlanBrief::Making::failed;
}

std::string joined(const std::vector<std::string>& directories) {
  return fmt::format("{}", fmt::join(directories, "; "));
}

void add_plan_troubles(TroubleList& list, const std::vector<PlanBrief>& plans) {
  for (const PlanBrief& plan : plans) {
    if (is_suspended(plan)) {
      const std::string instead = plan.followed_instead.empty()
                                      ? "so nothing is fetched ahead for it"
                                      : "followed instead: " + escaped(plan.followed_instead);
      list.troubles.push_back(
          {"plan_suspended", 1,
           fmt::format("plan {} is suspended: its reader goes another way, {}", plan.name, instead),
           plan.divergence});
    }
    if (has_failed(plan)) {
      list.troubles.push_back({"plan_failed", 1,
                               fmt::format("plan {} could not be made: {}", plan.name,
                                           plan.in_force ? "what it was to replace stays in force"
                                                         : "nothing is fetched ahead for it"),
                               plan.error});
    }
  }
}

}  // namespace

void FailedReads::record(FileId file, int code) {
  const std::string path = escaped(catalog_.path(file));
  MutexLock lock(mutex_);
  std::string& first = code == ESTALE ? refused_ : failed_;
  if (first.empty()) first = code == ESTALE ? path : fmt::format("{} ({})", path, std::strerror(code));
}

std::string FailedReads::first_failed() const {
  MutexLock lock(mutex_);
  return failed_;
}

std::string FailedReads::first_refused() const {
  MutexLock lock(mutex_);
  return refused_;
}

std::vector<Trouble> list_troubles(const Metrics& m, const std::vector<PlanBrief>& plans,
                                   const TroubleNames& names) {
  TroubleList list;
  const uint64_t refused = m.reads_refused.value();
  list.add("reads_failed", m.reads_failed.value() - std::min(refused, m.reads_failed.value()), "read failed",
           "reads failed", names.failed_read);
  list.add("reads_refused", refused, "read refused because the source file changed since the scan",
           "reads refused because the source file changed since the scan", names.refused_read);
  if (refused == 0) {
    list.add("fetches_refused", m.pfs_stale_files.value(),
             "fetch ahead found that the source file changed since the scan",
             "fetches ahead found that the source file changed since the scan", names.stale);
  }
  list.add("source_silent", value_of(m.pfs_silent), "request to the source has had no answer yet",
           "requests to the source have had no answer yet", names.silent);
  list.add("dirty_writes", m.fuse_dirty_writes.value(),
           "write to a dataset file, refused and dropped; others may have read what it changed",
           "writes to dataset files, refused and dropped; others may have read what they changed",
           names.dirty_writer);
  add_plan_troubles(list, plans);
  list.add("entries_unreadable", value_of(m.catalog_unreadable), "entry could not be read by the scan",
           "entries could not be read by the scan", names.unreadable.empty() ? "" : "in " + names.unreadable);
  list.add("source_errors", m.pfs_errors.value(), "error from the source", "errors from the source",
           names.source_error);
  list.add("nvme_silent", value_of(m.nvme_silent),
           "NVMe directory does not answer: the source is read instead of its disk",
           "NVMe directories do not answer: the source is read instead of their disks",
           joined(names.nvme_silent));
  list.add("nvme_full", value_of(m.nvme_full),
           "NVMe directory stays smaller than it should be: its disk is full",
           "NVMe directories stay smaller than they should be: their disks are full",
           fmt::format("{}", fmt::join(names.full_disks, ", ")));
  list.add("nvme_cut_short", value_of(m.nvme_cut_short), "NVMe directory stays smaller than it should be",
           "NVMe directories stay smaller than they should be", joined(names.nvme_cut_short));
  list.add("nvme_errors", m.nvme_errors.value(), "error from NVMe", "errors from NVMe",
           joined(names.nvme_errors));
  list.add("nvme_checksum_failures", m.nvme_checksum_failures.value(),
           "chunk on NVMe had a wrong checksum and was fetched again",
           "chunks on NVMe had a wrong checksum and were fetched again", joined(names.nvme_damaged));
  list.add("nvme_disabled", value_of(m.nvme_disabled), "NVMe directory is switched off: see the log",
           "NVMe directories are switched off: see the log", joined(names.nvme_disabled));
  return std::move(list.troubles);
}

std::vector<Trouble> without_names(const Metrics& metrics, const std::vector<PlanBrief>& plans) {
  TroubleList list;
  const auto count = [&](bool (*which)(const PlanBrief&)) {
    return static_cast<uint64_t>(std::count_if(plans.begin(), plans.end(), which));
  };
  list.troubles = list_troubles(metrics, {}, {});
  list.add("plan_suspended", count(is_suspended), "plan is suspended", "plans are suspended");
  list.add("plan_failed", count(has_failed), "plan could not be made", "plans could not be made");
  return std::move(list.troubles);
}

std::string first_unreadable(const Catalog& catalog) {
  for (uint32_t i = 0; i < catalog.size(); ++i) {
    const FileId id(i);
    if (catalog.kind(id) != Catalog::Kind::directory || !catalog.source_state(id).incomplete) continue;
    const std::string path = catalog.path(id);
    return path.empty() ? "the dataset's top folder" : escaped(path);
  }
  return "";
}

}  // namespace clairfs
