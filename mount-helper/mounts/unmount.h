// Taking a mount away, with or without root.
#pragma once

#include <string>

#include "cache/base/result.h"

namespace clairfs {

/// Unmounts `mountpoint` (absolute, resolved) with umount2(2), or with fusermount3 where that needs
/// privileges that are missing. Clears stale mounts too. `lazy` detaches a mount that is in use; it ends with
/// its last user. Errors: EBUSY with the processes that use it, as far as this user may see; EPERM; others,
/// one line each.
Status unmount(const std::string& mountpoint, bool lazy);

/// Path of fusermount3 as libfuse finds it, also without a PATH; empty if there is none.
std::string find_fusermount();

}  // namespace clairfs
