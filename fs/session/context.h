// The state that every FUSE operation works on.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <sys/types.h>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/tasks/task_thread.h"
#include "fs/base/bounded_tasks.h"
#include "fs/base/inodes.h"
#include "fs/control/access_log.h"
#include "fs/control/files.h"
#include "fs/control/troubles.h"
#include "fs/page_cache/dirty_pages.h"
#include "fs/page_cache/readahead.h"
#include "fs/session/pending_reads.h"
#include "plan/placement/placement_map.h"
#include "plan/plan_manager.h"
#include "plan/staging/sentinel_pages.h"

namespace clairfs {

/// The mount as its own operations see it. Thread-safe.
class OwnMount {
 public:
  virtual ~OwnMount() = default;
  /// Makes the kernel drop the pages of [offset, offset + length) of an inode. May wait for READs under way,
  /// so never called from a request handler.
  virtual void invalidate(Inode inode, off_t offset, off_t length) = 0;
  /// Where thread `reader` finds the plan file that takes writes (PlanDoor::path_for()); empty where that is
  /// .clairfs/plan itself.
  virtual std::string plan_path(pid_t reader) const = 0;
  /// Regular files are shown without write bits, so that none can be opened for writing.
  virtual bool hides_write_bits() const = 0;
};

/// References to the parts of a mount; all outlive the FUSE session.
struct FuseContext {
  const Catalog& catalog;
  ChunkCache& cache;
  ControlFiles& control;
  AccessLog& access_log;
  FailedReads& failed_reads;
  PendingReads& pending_reads;
  BoundedTasks& control_tasks;  ///< what is set and written: registering a plan may read long lists
  TaskThread& invalidations;    ///< milliseconds, or as long as a READ that is under way
  TaskThread& checksums;        ///< whole files: as long as reading them takes
  PlanManager& plans;
  SentinelPages& sentinels;
  DirtyPages& dirty_pages;
  Readahead& readahead;
  const Clock& clock;
  Metrics& metrics;
  Logger& log;
  OwnMount& mount;
  /// Where the nodes of a job keep what; returns null on a single node or without a plan.
  std::function<std::shared_ptr<const PlacementMap>()> placement;
};

/// The data that libfuse hands to the operations of one session, and to its reading and writing of the
/// device.
struct SessionData {
  FuseContext* context = nullptr;  ///< set before the session is served
  /// Number of the INIT request while it is being answered; 0: there is none.
  std::atomic<uint64_t> init_unique{0};
  std::atomic<bool> init_answered{false};
};

}  // namespace clairfs
