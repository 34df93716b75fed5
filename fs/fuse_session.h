// The mount: a libfuse low-level session with its own threads.
//
// Life: mount() makes the mount point live: processes that touch it from then on wait. That may need to fork,
// to start a program at once (fusermount3), so it comes before MPI, which must not be forked. start() begins
// to serve and returns once the kernel has agreed on the protocol; stop() detaches the mount and ends the
// threads. When another program unmounts (umount, fusermount3 -u), the threads end by themselves and
// `on_unmounted` is called.
//
// No user may open a dataset file for writing, since a shared writable mapping changes what others read, and
// zero-message open never asks us:
// - A user who mounts without --allow-other gets a mount that is writable to the kernel, so that plans can be
//   set on folders; regular files have no write bits then, and the kernel checks modes.
// - Root may write whatever the modes say. Where root can enter (root mounts, or --allow-other is given), the
//   mount is read-only to the kernel, and plans come in by another mount (plan_door.h).
//
// libfuse 3.14 never tells the kernel that directory operations may run in parallel, so its answer to INIT is
// amended on its way out (see write_reply in the .cc).
#pragma once

#define FUSE_USE_VERSION 314
#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "cache/base/fd.h"
#include "fs/plan_door.h"
#include "fs/session/context.h"
#include "fs/session/loop.h"
#include "fs/session/mount.h"

namespace clairfs {

/// Thread-safe after start().
class FuseSession final : public OwnMount {
 public:
  /// Errors: those of mount_session().
  static Result<std::unique_ptr<FuseSession>> mount(const FuseOptions& options, Logger& log);
  ~FuseSession() override;

  /// Serves requests out of `context`, which outlives this. Errors: ETIMEDOUT if the kernel does not begin to
  /// talk.
  Status start(FuseContext& context, std::function<void()> on_unmounted);
  void invalidate(Inode inode, off_t offset, off_t length) override;
  std::string plan_path(pid_t reader) const override { return door_ ? door_->path_for(reader) : ""; }
  bool hides_write_bits() const override { return modes_suffice_; }

  /// The FUSE device; it stays open until the destructor, or close_device().
  int device() const { return fuse_session_fd(session_.get()); }

  /// Unmounts (lazily if busy) and ends the threads; answers that are still on their way do no harm until the
  /// destructor. May be called more than once, not from a FUSE thread.
  void stop();
  /// The first half of stop(): paths do not lead to the mount any more.
  void detach();
  /// Closes the device though threads may use it: for a process that ends with threads that do not, which
  /// would keep it open.
  void close_device();

 private:
  FuseSession(const FuseOptions& options, Logger& log);
  Status mount();
  static void on_init(void* userdata, fuse_conn_info* connection);

  const FuseOptions options_;
  const bool modes_suffice_;  // all users who can enter the mount are held to the modes of its files
  Logger& log_;
  SessionData data_;
  std::unique_ptr<PlanDoor> door_;  // null where there is none
  SessionHandle session_;
  Fd nothing_;  // /dev/null, opened early: for close_device()
  std::atomic<bool> stopping_{false};
  dev_t device_ = 0;  ///< of the mount; set by start()
  FuseLoop loop_;     // last: serves the session
};

}  // namespace clairfs
