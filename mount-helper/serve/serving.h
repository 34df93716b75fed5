// The last phase of a mount: plans are taken, and requests answered.
#pragma once

#include <memory>

#include "cache/tasks/step_thread.h"
#include "cache/tasks/task_thread.h"
#include "fs/base/bounded_tasks.h"
#include "fs/control/access_log.h"
#include "fs/control/files.h"
#include "fs/control/history.h"
#include "fs/control/reports.h"
#include "fs/control/socket.h"
#include "fs/control/troubles.h"
#include "fs/fuse_session.h"
#include "fs/page_cache/dirty_pages.h"
#include "fs/page_cache/page_pusher.h"
#include "fs/session/context.h"
#include "mount-helper/serve/job_node.h"
#include "mount-helper/serve/loaded.h"
#include "mount-helper/serve/mount_point.h"
#include "plan/formats/index/index_store.h"
#include "plan/plan_manager.h"
#include "plan/staging/staging.h"

namespace clairfs {

/// The plans of a mount and what carries them out.
struct Planning {
  /// All outlive its threads. The device of `session` is open.
  Planning(MountBase& base, Loaded& loaded, const FuseSession& session);
  /// The bytes that any cache would have to read from the source; 0 on a single node.
  uint64_t least_source_bytes() const;
  /// Where the nodes of a job keep what; null on a single node or without a plan.
  std::shared_ptr<const PlacementMap> current_placement() const;

  PagePusher pusher;
  Staging staging;
  StepThread staging_thread;
  IndexStore indexes;
  const std::unique_ptr<NodePlacement> placement;  ///< null on a single node
  PlanManager plans;
};

/// Made and ended by the main thread. The base and `loaded` outlive it.
class Serving {
 public:
  /// Mounts, unless that is done. Errors: those of MountPoint::mount() and ControlSocket::open().
  static Result<std::unique_ptr<Serving>> prepare(MountBase& base, Loaded& loaded);
  /// Ends the mount, `loaded` too.
  ~Serving();

  /// Answers the job and the kernel from now on. Errors: those of FuseSession::start().
  Status start();

 private:
  /// Threads for requests that take long.
  struct Tasks;

  Serving(MountBase& base, Loaded& loaded, FuseSession& session, std::unique_ptr<Planning> planning,
          std::unique_ptr<ControlSocket> control_socket);
  std::vector<Trouble> troubles() const;
  void add_reports();
  void add_control_files();
  Turn keep_history();

  MountBase& base_;
  Loaded& loaded_;
  FuseSession& session_;
  const std::unique_ptr<Planning> planning_;
  PlanManager& plans_;
  std::unique_ptr<ControlSocket> control_socket_;
  const MountInfo info_;
  const std::string first_unreadable_;
  ControlFiles control_;
  AccessLog access_log_;
  FailedReads failed_reads_;
  DirtyPages dirty_pages_;
  std::unique_ptr<Tasks> tasks_;
  FuseContext context_;
  History history_;
  Alarm history_alarm_;  // rings once, at the start
  StepThread history_thread_;
};

}  // namespace clairfs
