// Files that this user's processes leave for later ones: catalogs, indexes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// Writes to a temporary file that is synced and renamed, with mode 0600; the directory is made with mode
/// 0700 when missing. Two processes may save the same file at once; one of them then leaves it to the other.
/// Errors: those of the system calls, with the path.
Status save_own_file(const std::string& path, std::span<const std::byte> bytes);

/// An open file that nobody else could have written.
struct OwnFile {
  std::string path;
  Fd fd;
  uint64_t size = 0;  ///< bytes
};

/// Errors: ENOENT; EPERM when the file is not ours alone to write; those of the system calls.
Result<OwnFile> open_own_file(const std::string& path);

/// The first bytes of the file. Errors: those of pread(2); EBADMSG when it has fewer.
Status read_own_file(const OwnFile& file, std::span<std::byte> to);

}  // namespace clairfs
