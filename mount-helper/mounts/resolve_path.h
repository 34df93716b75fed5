// Paths as the kernel's list of mounts has them.
#pragma once

#include <string>

#include "cache/base/result.h"

namespace clairfs {

/// `path` absolute with symlinks resolved. It may lead to a stale mount, which realpath(3) cannot pass, or
/// below one, where nothing can be looked up. Errors: silent_path() after ten seconds; those of realpath(3).
Result<std::string> resolve_path(const std::string& path);

/// ENOTCONN for a path as resolve_path() gives it, on a FUSE mount whose daemon is gone ("transport endpoint
/// is not connected"): which mount that is, and what clears it. The daemon of another filesystem may live and
/// say so itself: GlusterFS does while it reaches no server.
Error stale_mount(const std::string& path);

}  // namespace clairfs
