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

/// Makes `path` (mode 0700) if only its last component is missing. Refuses, naming the fix: a symlink, a path
/// that is not a directory, another owner, access for group or others, a directory in use (EBUSY; names the
/// owner's pid), one that cannot be written, one with files that are not of a store (ENOTEMPTY).
/// The lock file notes `dataset`, a path of one line, for people: nvme_directory_dataset().
Result<NvmeDirectory> lock_nvme_directory(const std::string& path, const std::string& dataset = {});

/// Refuses as lock_nvme_directory() would, as far as that shows without making or locking anything: a
/// directory in use is not refused.
Status check_nvme_directory(const std::string& path);

/// The dataset whose chunks the directory holds, as its last user noted it; empty where nothing is known.
std::string nvme_directory_dataset(const std::string& path);

}  // namespace clairfs
