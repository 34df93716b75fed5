// Compares the source with a catalog that was made of it earlier.
#pragma once

#include <optional>
#include <string>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/scan.h"

namespace clairfs {

/// How a saved catalog is compared with its source.
enum class CatalogCheck {
  /// One stat for every entry: size, mtime, ctime, mode, owner, inode number. Sees every change.
  full,
  /// One stat for every directory. Sees what was added, removed or renamed; a file that was changed in place
  /// (or given another mode) is only noticed when it is first read.
  directories,
};

/// The first difference found between `catalog` and the tree below the directory `source_fd`, as one line for
/// people; nothing when there is none. A directory that could not be read when it was scanned and now can is
/// a difference. No directory is listed. Device numbers are not compared: network filesystems get new ones at
/// each mount. Each of its threads has at most 2 descriptors; `progress` is called on the
/// calling thread, about ten times a second, with the entries compared so far. Thread-safe.
std::optional<std::string> find_change(const Catalog& catalog, int source_fd, CatalogCheck check,
                                       ScanThreads threads, const ScanProgress& progress = {});

}  // namespace clairfs
