// The way in for plans where the kernel refuses every write to the mount itself.
//
// No process may open a dataset file for writing: every other reader of the node would read what a shared
// mapping changes. So the kernel is told that the mount is read-only, and writes to a control file are
// refused there too. They go to a second FUSE mount instead, which holds nothing but the file `plan`. It is
// at no place in any mount table: it is mounted in a directory that exists for a moment, opened, and
// detached, and lives as long as the descriptor. MOUNT/.clairfs/plan is a symlink through that descriptor,
// /proc/PID/fd/N/plan, which works in every mount namespace. So nothing lies inside the dataset's mount that
// would make it busy, and a killed daemon leaves nothing behind: not even one that is killed between mounting
// and detaching, where it may make a mount namespace for that moment.
//
// In another PID namespace (a container) the number would mean another process: there the file is a
// read-only one, and plans are given over the control socket.
#pragma once

#include <memory>
#include <string>

#include <sys/types.h>

#include "cache/base/fd.h"
#include "fs/session/context.h"
#include "fs/session/loop.h"
#include "fs/session/mount.h"

namespace clairfs {

class PlanDoor {
 public:
  /// Mounts it; may start fusermount3. Errors: one line.
  static Result<std::unique_ptr<PlanDoor>> mount(const FuseOptions& options);

  /// Serves it out of `context`, which outlives this.
  void start(FuseContext& context);
  /// Ends the thread; answers that are still on their way do no harm until the destructor.
  void stop() { loop_.stop(); }
  /// As FuseSession::close_device(); `nothing` is a descriptor of /dev/null.
  void close_device(int nothing);

  /// Where the file is for thread `reader`; empty if that lives in another PID namespace. From any thread.
  std::string path_for(pid_t reader) const;

 private:
  PlanDoor() = default;
  static Result<std::unique_ptr<PlanDoor>> mount_and_detach(const FuseOptions& options);

  SessionData data_;
  SessionHandle session_;
  Fd root_;  // O_PATH: all that holds the mount
  FuseLoop loop_;
};

}  // namespace clairfs
