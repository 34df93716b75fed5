#include "mount-helper/daemon.h"

#include <cerrno>

#include "mount-helper/commands/commands.h"

namespace clairfs {

int serve(const MountOptions& options, Logger&, const ServeEvents& events) {
  events.ready(Error{ENOSYS, "no filesystem is built in to serve " + options.source});
  return exit_mount_failure;
}

}  // namespace clairfs
