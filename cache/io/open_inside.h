// Opens a path of the catalog. The catalog names no symlink on the way to a file, so one that is met there
// was put there since: it is not followed, wherever it leads. Otherwise a user who may write to one folder of
// the dataset could make a daemon of root read any file of the machine.
#pragma once

#include <cstdint>

#include <linux/openat2.h>

namespace clairfs {

/// openat2(2)'s argument for `flags`.
inline open_how how_inside(int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_NO_SYMLINKS;
  return how;
}

/// A descriptor of `path` (relative, not empty) below `directory`, or -1 and errno as of openat2(2); a
/// symlink anywhere in it gives ELOOP or ENOTDIR. Where openat2() is missing (before Linux 5.6) or forbidden
/// (seccomp), the path is walked. Thread-safe.
int open_inside(int directory, const char* path, int flags);

}  // namespace clairfs
