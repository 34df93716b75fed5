// The directory of one NVMe store: made, checked and locked.
#pragma once

#include <string>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// Holds the directory's flock until destroyed.
struct NvmeDirectory {
  Fd directory;
  Fd lock;
};

/// Makes `path` (mode 0700) if only its last component is missing. Refuses, naming the fix: a symlink, what
/// is not a directory, another owner, access for group or others, a directory in use (EBUSY; names the
/// owner's pid), one that cannot be written, one that holds what is not of a store (ENOTEMPTY).
Result<NvmeDirectory> lock_nvme_directory(const std::string& path);

}  // namespace clairfs
