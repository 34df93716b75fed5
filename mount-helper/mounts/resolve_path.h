// Paths as the kernel's list of mounts has them.
#pragma once

#include <string>

#include "cache/base/result.h"

namespace clairfs {

/// `path` absolute with symlinks resolved. The last component may be a stale mount, which realpath(3) cannot
/// pass. Errors: stale_mount() for what is below one; ETIMEDOUT after ten seconds; those of realpath(3).
Result<std::string> resolve_path(const std::string& path);

/// ENOTCONN for an absolute path on a mount whose daemon is gone ("transport endpoint is not connected"):
/// which mount that is, of whatever filesystem, and what clears it.
Error stale_mount(const std::string& path);

}  // namespace clairfs
