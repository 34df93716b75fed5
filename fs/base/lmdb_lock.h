// LMDB's lock files, by their names.
//
// liblmdb opens its lock file for reading and writing, and makes it if it is not there, also for readers. It
// goes on without one only if that fails with EROFS. The kernel answers so by itself where it takes the mount
// to be read-only. Where it does not, it checks modes first, and a user without write permission gets EACCES,
// with which liblmdb gives up. There the mount hides these files, and a LOOKUP of one fails with EROFS, which
// is what open(2) then returns, whether the file exists or not.
#pragma once

#include <string_view>

#include "cache/catalog/catalog.h"

namespace clairfs {

/// Whether `name` in `directory` is what a database in the same directory has as its lock file, be it there
/// or not: lock.mdb beside data.mdb, or X-lock beside X. Nothing is read, so a database is a regular file of
/// at least two whole pages of 4 KiB, and a lock file, if there is one, a regular file of whole entries of 64
/// bytes. REQUIRES: `directory` is one.
bool is_lmdb_lock(const Catalog& catalog, FileId directory, std::string_view name);

}  // namespace clairfs
