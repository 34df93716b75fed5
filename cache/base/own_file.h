// Files that this user's processes leave for later ones: catalogs, indexes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// Makes `directory` and those above it that are missing, with mode 0700; nothing to make if it is empty.
/// Errors: those of mkdir(2), with the path.
Status make_directories(const std::string& directory);

/// Writes to a temporary file that is synced and renamed, with mode 0600. Calls
/// make_directories() for its directory. Two processes may save the same file at once; one of them then
/// leaves it to the other. Errors: those of the system calls, with the path.
Status save_own_file(const std::string& path, std::span<const std::byte> bytes);

/// An open file that no other user could have written.
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
