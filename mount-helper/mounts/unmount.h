// Taking a mount away, with or without root.
#pragma once

#include <functional>
#include <string>

#include "cache/base/result.h"

namespace clairfs {

enum class Unmounting {
  orderly,
  of_silent_daemon,  ///< orderly, but its daemon does not answer, so that it is not worth many attempts
  lazy,              ///< detaches a mount that is in use; it ends with its last user
};

/// Unmounts `mountpoint` (absolute, resolved) with umount2(2), or with fusermount3 where that needs
/// privileges that are missing. Clears stale mounts too. Errors: EBUSY with the processes that use it, as far
/// as this user may see; EPERM; others, one line each.
Status unmount(const std::string& mountpoint, Unmounting how);

/// The parts of unmount().
struct UnmountSteps {
  std::function<Status()> once;
  /// Somebody but the daemon is seen to use it.
  std::function<bool()> used_by_others;
  std::function<void()> pause;
  bool daemon_answers = true;
};
/// Tries `once` while it fails with EBUSY: some two seconds where others use the mount or its daemon hangs,
/// ten where nobody is seen but the daemon, which comes and goes. Errors: those of `once`.
Status unmount_patiently(const UnmountSteps& steps);

/// Path of fusermount3 as libfuse finds it, also without a PATH; empty if there is none.
std::string find_fusermount();

}  // namespace clairfs
