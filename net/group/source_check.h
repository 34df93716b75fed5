// Checks that this node sees the dataset that another node has scanned.
#pragma once

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"

namespace clairfs {

/// Files that are looked at. A different snapshot or mount differs in nearly all files; a PFS must not be
/// asked for more by each of a thousand nodes that start at once. Changes of single files are seen when they
/// are read.
inline constexpr unsigned kCheckedFiles = 16;

/// Compares the root and some files of `source_fd`, chosen by hash, with the catalog: that they are there, of
/// their kind, and have the size and mtime that it says. Waits for the filesystem. Errors: ESTALE with what
/// differs and what to do.
Status check_source(const Catalog& catalog, int source_fd);

}  // namespace clairfs
