// Finds and removes the files that mounts leave behind, so that they do not grow for ever: catalogs, indexes
// of packed files, logs, found orders and lists of found plans of one catalog directory, and NVMe
// directories.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

struct SavedFile {
  enum class Kind { catalog, index, log, found, nvme, temporary };
  Kind kind = Kind::catalog;
  std::string path;
  std::string of;                              ///< the dataset, or of a log the mountpoint as its name has it
  uint64_t bytes = 0;                          ///< on disk
  std::chrono::system_clock::time_point used;  ///< last written, or read where the filesystem keeps that
  bool in_use = false;                         ///< by a mount of this machine, as far as that is known
};

/// The files of mounts below `catalog_dir`, and the NVMe directories among `nvme`; other files are left out.
/// Errors: those of listing one of them; a directory that is missing is empty.
Result<std::vector<SavedFile>> saved_files(const std::string& catalog_dir,
                                           const std::vector<std::string>& nvme);

/// Those that were not used for `age` and are not in use.
std::vector<SavedFile> outdated(const std::vector<SavedFile>& files, std::chrono::hours age,
                                std::chrono::system_clock::time_point now);

/// Removes it; of an NVMe directory what clairfs has made in it. The directory stays, as the next mount and
/// the next prune name it. Errors: EBUSY when a mount has it; those of the system calls, with the path.
Status remove_saved(const SavedFile& file);

/// A table for people, the largest first, with the sum. REQUIRES: there are files.
std::string saved_table(std::vector<SavedFile> files, std::chrono::system_clock::time_point now);

}  // namespace clairfs
