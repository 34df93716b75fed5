// Locking while saving: writers of one file share the name of their temporary file, so that a killed one
// leaves nothing that the next does not reuse, and hold flock on it. A writer that gets the lock must look
// whether the file still has that name: the one before may have renamed it into place.
#include "cache/base/own_file.h"

#include <cerrno>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/escaped.h"

namespace clairfs {
namespace {

namespace fs = std::filesystem;

Error failed_to(const char* what, const std::string& path) {
  return system_error(errno, std::string(what) + " " + escaped(path));
}

// The locked, empty temporary file; nothing when another process is writing it.
Result<std::optional<Fd>> lock_temporary(const std::string& path) {
  for (;;) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd) return failed_to("create", path);
    // Filesystems without flock: two writers at once would be caught by the checksum.
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return std::optional<Fd>();
    struct stat ours = {};
    struct stat named = {};
    if (::fstat(fd.get(), &ours) != 0) return failed_to("stat", path);
    if (::lstat(path.c_str(), &named) != 0 || named.st_ino != ours.st_ino) continue;
    if (::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), 0) != 0) return failed_to("clear", path);
    return std::optional<Fd>(std::move(fd));
  }
}

Status sync_directory(const std::string& directory) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return failed_to("sync", directory);
  return {};
}

}  // namespace

Status make_directories(const std::string& directory) {
  std::error_code ignored;
  if (directory.empty() || fs::is_directory(directory, ignored)) return {};
  const std::string parent = fs::path(directory).parent_path();
  if (parent != directory) {
    if (Status status = make_directories(parent); !status) return status;
  }
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return failed_to("make directory", directory);
  return {};
}

Status save_own_file(const std::string& path, std::span<const std::byte> bytes) {
  const std::string directory = fs::path(path).parent_path();
  if (Status status = make_directories(directory); !status) return status;
  const std::string temporary = path + ".tmp";
  Result<std::optional<Fd>> locked = lock_temporary(temporary);
  if (!locked) return locked.error();
  if (!*locked) return {};  // another process saves the same
  const int fd = (*locked)->get();
  Status status = write_fully(fd, bytes, 0, "write " + escaped(temporary));
  if (status && ::fsync(fd) != 0) status = failed_to("sync", temporary);
  if (status && ::rename(temporary.c_str(), path.c_str()) != 0) status = failed_to("rename", temporary);
  if (!status) {
    ::unlink(temporary.c_str());
    return status;
  }
  return sync_directory(directory);
}

Result<OwnFile> open_own_file(const std::string& path) {
  // O_NONBLOCK: a pipe under this name must not make us wait.
  Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat attributes = {};
  if (!fd || ::fstat(fd.get(), &attributes) != 0) return failed_to("open", path);
  if (!S_ISREG(attributes.st_mode)) return Error{EPERM, escaped(path) + " is not a regular file"};
  if (attributes.st_uid != ::geteuid() || (attributes.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{EPERM, escaped(path) + " could have been written by others"};
  }
  return OwnFile{path, std::move(fd), static_cast<uint64_t>(attributes.st_size)};
}

Status read_own_file(const OwnFile& file, std::span<std::byte> to) {
  const auto got = read_fully(file.fd.get(), to, 0, "read " + escaped(file.path));
  if (!got) return got.error();
  if (*got < to.size()) return Error{EBADMSG, escaped(file.path) + " shrank while it was read"};
  return {};
}

}  // namespace clairfs
