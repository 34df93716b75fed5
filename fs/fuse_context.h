// What every FUSE operation works on.
#pragma once

#include <functional>
#include <memory>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/catalog.h"
#include "cache/chunk_cache.h"
#include "fs/access_log.h"
#include "fs/bounded_tasks.h"
#include "fs/control_files.h"
#include "fs/pending_reads.h"
#include "fs/task_thread.h"
#include "plan/placement.h"
#include "plan/plan_manager.h"
#include "plan/sentinel_tails.h"

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
  const Clock& clock;
  Metrics& metrics;
  Logger& log;
  /// Where the nodes of a job keep what; null on a single node or without a plan.
  std::function<std::shared_ptr<const Placement>()> placement{[] { return nullptr; }};
  /// Makes the kernel drop the pages of [offset, offset + length) of an inode. May wait for READs under way,
  /// so never called from a request handler. Set by the session before it serves.
  std::function<void(Inode inode, off_t offset, off_t length)> invalidate{};
};

}  // namespace clairfs
