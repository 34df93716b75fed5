// Staging fetches the samples that a reader needs next, and puts them into the kernel's page cache before the
// reader asks for them.
//
// step() walks the sequence of every reader of a plan (plan_reader.h), each in its own window, which moves
// with the reader. The window fetches the next samples, by deadline, pushes them in the order of the
// sequence, and drops those that the reader is done with (reader_window.h). Staging has all that concerns
// several windows: the plans that are followed, the budget, the memory that fetches take, and the pages that
// every reader needs.
//
// Pushed samples are read without a request, so some are sentinels: one page of them is left out, and the
// READ that asks for it tells where the reader is (sentinel_pages.h).
//
// The kernel may take pages back before they are read (plan/staging/repair.cc). A READ of a sample that was
// pushed whole tells of it. The window is looked through then, and missing pages are fetched and pushed once
// more.
//
// The pages that every reader of a plan needs come before all samples: a database's index, headers. They
// stay. A READ of one of them tells that the kernel took some back. All of them are looked through then, and
// missing ones are fetched and pushed again (plan/staging/common.cc).
//
// When a window is full and a tier has room, the window fetches chunks further ahead into the tier at the
// lowest priority. So it uses a fast source's idle time.
//
// Where memory is to spare, samples stay in the page cache after they were read (plan/staging/keep.cc): all
// of a plan that fits, or a part of one that does not.
//
// The windows of all readers share the budget. One whose reader has stopped makes room for other
// plans (plan/staging/make_room.cc).
//
// Staging is an optimisation only: no READ depends on it for correctness or progress. A reader that gets
// ahead, or whose plan is wrong, is answered by the cache as without a plan.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/metrics.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/tasks/alarm.h"
#include "cache/tasks/step_thread.h"
#include "plan/retention/next_use_policy.h"
#include "plan/run/plan_run.h"
#include "plan/staging/sentinel_pages.h"
#include "plan/staging/staging_parts.h"

namespace clairfs {

struct BudgetLoad;
struct StagedPlan;

/// The plans of records in larger files that are followed.
enum class RecordPlans : uint8_t {
  none,
  found,      ///< one that was found, and none that somebody has registered
  registered  ///< one that was registered, maybe among others
};

/// The kernel's page cache for the mount's files. Calls may wait for the kernel. They come from
/// Staging::step() only, but for expect_records(), which Staging::add() makes as well.
class PageCache {
 public:
  virtual ~PageCache() = default;
  /// Stores `memory` as the bytes of `file` from `offset` on. REQUIRES: `offset` is a multiple of the page
  /// size; the end is too, or is the end of the file. Pages that a READ has asked for may be left to it.
  /// Errors: those of the kernel; the file then stays as it is.
  virtual Status push(FileId file, uint64_t offset, const std::vector<iovec>& memory) = 0;
  /// Drops the pages of [offset, offset + length), page multiples or up to the end of the file. Pages that a
  /// READ has asked for may stay, or come back with its answer.
  virtual void drop(FileId file, uint64_t offset, uint64_t length) = 0;
  /// How many pages of [offset, offset + length) are there; nullopt where the kernel does not tell.
  virtual std::optional<uint64_t> pages_of(FileId file, uint64_t offset, uint64_t length) = 0;
  /// Says which plans of records are followed. The bytes that the kernel reads around a missing page are of
  /// no use to a reader of records. Other readers need them, so only a registered plan may have the kernel
  /// leave them out, in files that are opened afterwards. Thread-safe.
  virtual void expect_records(RecordPlans followed) = 0;
};

struct StagingOptions {
  /// Bytes of page cache, in whole pages, for samples pushed and not yet read, over all plans.
  uint64_t budget = 0;
  /// Bytes of page cache beside it, for samples that stay there once they were read: all of those of a plan,
  /// or as many as fit.
  uint64_t keep = 0;
  /// Whether tiers are filled with records in the order of their file. Only benchmarks do without.
  bool fill_in_file_order = true;
};

/// The bytes of a plan's dataset that a node's page cache has at most when the next epoch begins.
inline uint64_t kept_between_epochs(const StagingOptions& node, uint64_t dataset_bytes) {
  return std::min(node.budget + node.keep, dataset_bytes);
}

/// Thread-safe, except that step() and stop() are for one thread at a time. The constructor's arguments
/// outlive it.
class Staging {
 public:
  Staging(ChunkCache& cache, NextUsePolicy& policy, const Catalog& catalog, PageCache& pages,
          Metrics& metrics, const StagingOptions& options);
  ~Staging() { stop(); }
  /// No step() comes after it. Fetches under way complete without effect, later calls stage nothing.
  void stop();

  /// One turn of every plan, at `now`: milliseconds, unless the kernel makes it wait.
  Turn step(TimePoint now);
  /// Rings when there is something to do.
  Alarm& alarm();

  /// REQUIRES: one call at a time.
  void add(const std::shared_ptr<PlanRun>& run);
  void remove(const std::string& plan);
  /// The reader moved, or the plan's timeline changed.
  void wake();
  /// The kernel asks for [offset, offset + length) of `file`, so it does not have those pages. Costs a look
  /// among the pages that every reader of the plan needs. For the threads that answer requests.
  void note_read(const std::string& plan, FileId file, uint64_t offset, uint64_t length);
  /// The sentinels: READs report to it, and READs of sentinels are answered from it.
  SentinelPages& sentinels() { return parts_.sentinel_pages; }
  /// Samples between a reader's high-water mark and the last one pushed for it; of all readers, or of one by
  /// its rank.
  uint64_t ahead(const std::string& plan, std::optional<size_t> rank = {}) const;

 private:
  void forget_removed_plans();
  bool serve_all();
  bool make_room(const std::map<std::string, std::shared_ptr<StagedPlan>>& plans, bool waiting,
                 BudgetLoad& load);
  bool push_common(StagedPlan& plan);
  bool look_for_common(StagedPlan& plan);
  void list_common(StagedPlan& plan) const;
  uint64_t bytes_to_keep(const PlanRun& run) const;
  static bool may_keep_part(const PlanRun& run);
  bool keep_within(const std::map<std::string, std::shared_ptr<StagedPlan>>& plans, uint64_t room);
  void give_memory_back(const std::map<std::string, std::shared_ptr<StagedPlan>>& plans);
  std::map<std::string, std::shared_ptr<StagedPlan>> plans() const;
  void tell_of_records();

  const StagingOptions options_;
  StagingParts parts_;
  std::atomic<bool> stopped_{false};
};

}  // namespace clairfs
