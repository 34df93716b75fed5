// A second process that ends the mount of a daemon that was killed or crashed.
//
// The kernel aborts a mount when its device is closed for the last time. A daemon that is killed may never
// get there: a thread of it may wait in the kernel for good, for the page of a READ that is not answered any
// more (fs/page_cache/page_pusher.h) or for a source that hangs, and keep the device open. Its readers would
// wait for ever. The guard sleeps until the daemon's main thread has ended and aborts the connection then. A
// crash needs it sooner: the kernel writes the core, or decides not to, only when no thread waits any more.
//
// It aborts through the mount's file below /sys/fs/fuse/connections (fusectl), which it opens at its start.
// Where that is not mounted it takes CAP_SYS_ADMIN (umount2 with MNT_FORCE), and a mount that is still at its
// place. A guard that is killed together with the daemon cannot do it, nor can one whose daemon's main thread
// itself hangs in the source, at a mount's start. Of a stack that overflowed it is not told, since no handler
// has room to run: it is late then by what the other threads take to end.
#pragma once

#include <atomic>
#include <string>

#include <sys/types.h>

#include "cache/base/result.h"

namespace clairfs {

/// Tells one mount from the next at the same place, without asking its daemon. Before Linux 6.8 both numbers
/// may be given out again once the mount is gone.
struct MountIdentity {
  dev_t device = 0;
  uint64_t id = 0;
  friend bool operator==(const MountIdentity&, const MountIdentity&) = default;
};

/// Owned by the daemon's main thread, whose end is what it waits for. A daemon that ends in order stops it
/// last. One a process.
class Guard {
 public:
  Guard() = default;
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() { stop(); }

  /// Starts `clairfs guard`, and has it told of crashes. REQUIRES: the calling thread is the main thread;
  /// `mountpoint` is mounted, absolute and resolved. Errors: the program cannot be started.
  Status start(const std::string& mountpoint);
  void stop();
  /// Aborts the mount now; returns when that is done, or after a second. From any thread.
  void abort();

 private:
  std::atomic<pid_t> process_{0};
};

/// The work of `clairfs guard`: returns when process `daemon`, its parent, has ended or said so and the mount
/// is aborted, if it is still there. Errors: neither way of aborting it is allowed.
Status guard_mount(const std::string& mountpoint, const MountIdentity& mount, pid_t daemon);

}  // namespace clairfs
