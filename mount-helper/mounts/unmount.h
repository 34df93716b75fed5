// Taking a mount away, with or without root.
#pragma once

#include <functional>
#include <string>

#include "cache/base/result.h"

namespace clairfs {

/// Unmounts `mountpoint` (absolute, resolved) with umount2(2), or with fusermount3 where that needs
/// privileges that are missing. Clears stale mounts too. `lazy` detaches a mount that is in use; it ends with
/// its last user. Errors: EBUSY with the processes that use it, as far as this user may see; EPERM; others,
/// one line each.
Status unmount(const std::string& mountpoint, bool lazy);

/// The parts of unmount().
struct UnmountSteps {
  std::function<Status()> once;
  /// Somebody but the daemon is seen to use it.
  std::function<bool()> used_by_others;
  std::function<void()> pause;
};
/// Tries `once` while it fails with EBUSY: some two seconds where others use the mount, ten where nobody is
/// seen but the daemon, which comes and goes. Errors: those of `once`.
Status unmount_patiently(const UnmountSteps& steps);

/// Path of fusermount3 as libfuse finds it, also without a PATH; empty if there is none.
std::string find_fusermount();

}  // namespace clairfs
