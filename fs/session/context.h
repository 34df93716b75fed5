// What every FUSE operation works on.
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
#include "fs/base/bounded_tasks.h"
#include "fs/base/task_thread.h"
#include "fs/control/access_log.h"
#include "fs/control/files.h"
#include "fs/page_cache/dirty_pages.h"
#include "fs/session/pending_reads.h"
#include "plan/placement/placement.h"
#include "plan/plan_manager.h"
#include "plan/staging/sentinel_tails.h"

namespace clairfs {

/// References to the parts of a mount; all outlive the FUSE session.
struct FuseContext {
  const Catalog& catalog;
  ChunkCache& cache;
  ControlFiles& control;
  AccessLog& access_log;
  PendingReads& pending_reads;
  BoundedTasks& control_tasks;  ///< what is set and written: registering a plan may read long lists
  TaskThread& invalidations;    ///< milliseconds, or as long as a READ that is under way
  TaskThread& checksums;        ///< whole files: as long as reading them takes
  PlanManager& plans;
  SentinelTails& tails;
  DirtyPages& dirty_pages;
  const Clock& clock;
  Metrics& metrics;
  Logger& log;
  /// Where the nodes of a job keep what; null on a single node or without a plan.
  std::function<std::shared_ptr<const Placement>()> placement{[] { return nullptr; }};
  /// Makes the kernel drop the pages of [offset, offset + length) of an inode. May wait for READs under way,
  /// so never called from a request handler. Set by the session before it serves.
  std::function<void(Inode inode, off_t offset, off_t length)> invalidate{};
  /// Where thread `reader` finds the plan file that takes writes (PlanDoor::path_for()); null where that is
  /// .clairfs/plan itself. Set by the session before it serves.
  std::function<std::string(pid_t reader)> plan_path{};
  /// Regular files are shown without write bits, so that nobody opens one for writing. Set by the session.
  bool hide_write_bits = false;
};

/// What libfuse hands to the operations of one session, and to its reading and writing of the device.
struct SessionData {
  FuseContext* context = nullptr;  ///< set before the session is served
  /// Number of the INIT request while it is being answered; 0: there is none.
  std::atomic<uint64_t> init_unique{0};
  std::atomic<bool> init_answered{false};
};

}  // namespace clairfs
