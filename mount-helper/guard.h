// A second process that ends the mount of a daemon that was killed.
//
// The kernel aborts a mount when its device is closed for the last time. A killed daemon may never get there:
// what pushes pages may wait in the kernel, with a device open, for the page of a READ that nobody took any
// more (fs/page_pusher.h). Its readers would wait for ever. The guard sleeps until the daemon's main thread
// has ended and aborts the connection if it is still mounted.
//
// Aborting takes root (umount2 with MNT_FORCE) or the user's own file below /sys/fs/fuse/connections, where
// that is mounted. A guard that is killed together with the daemon cannot do it.
#pragma once

#include <string>

#include <sys/types.h>

#include "cache/base/result.h"

namespace clairfs {

/// Owned by the daemon's main thread, whose end is what it waits for. A daemon that ends in order destroys it
/// while its mount is still there.
class Guard {
 public:
  Guard() = default;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { stop(); }

  /// Starts `clairfs guard`. REQUIRES: the calling thread is the main thread; `mountpoint` is mounted,
  /// absolute and resolved. Errors: the program cannot be started.
  Status start(const std::string& mountpoint);
  void stop();

 private:
  pid_t process_ = 0;
};

/// What `clairfs guard` does: returns when process `daemon`, its parent, has ended and the mount is aborted.
/// Errors: neither way of aborting it is allowed.
Status guard_mount(const std::string& mountpoint, pid_t daemon);

}  // namespace clairfs
