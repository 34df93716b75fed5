// Paths as the kernel's list of mounts has them.
#pragma once

#include <string>

#include "cache/base/result.h"

namespace clairfs {

/// `path` absolute with symlinks resolved. The last component may be a stale mount, which realpath(3) cannot
/// pass.
Result<std::string> resolve_path(const std::string& path);

}  // namespace clairfs
