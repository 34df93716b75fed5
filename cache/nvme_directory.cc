#include "cache/nvme_directory.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

namespace clairfs {
namespace {

Error refused(int code, const std::string& path, const std::string& why) {
  return Error{code, "NVMe directory " + path + ": " + why};
}

Status check(const std::string& path, const struct stat& st) {
  if (S_ISLNK(st.st_mode)) return refused(ELOOP, path, "is a symlink; give the directory that it points to");
  if (!S_ISDIR(st.st_mode)) return refused(ENOTDIR, path, "is not a directory; give another path");
  if (st.st_uid != ::geteuid()) {
    return refused(EPERM, path,
                   fmt::format("belongs to user {}, not to user {} who mounts; chown it or give another",
                               st.st_uid, ::geteuid()));
  }
  if ((st.st_mode & 077) != 0) {
    return refused(EPERM, path,
                   fmt::format("is open to others (mode {:o}), and cached data would be too; chmod 700 {}",
                               st.st_mode & 07777, path));
  }
  return {};
}

std::string owner_of(int lock) {
  char pid[16] = {};
  const ssize_t n = ::pread(lock, pid, sizeof pid - 1, 0);
  std::string text(pid, n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.empty() ? "another process" : "process " + text;
}

Result<Fd> take_lock(const std::string& path, int directory) {
  Fd lock(::openat(directory, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!lock) {
    const int code = errno;
    Error error = system_error(code, "NVMe directory " + path + ": make the lock file");
    if (code == EROFS || code == EACCES) error.message += "; give a directory that can be written";
    return error;
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return system_error(errno, "NVMe directory " + path + ": lock");
    return refused(EBUSY, path,
                   "is in use by " + owner_of(lock.get()) + "; unmount that or give another directory");
  }
  const std::string pid = std::to_string(::getpid()) + "\n";
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    const int code = errno != 0 ? errno : ENOSPC;
    return system_error(code, "NVMe directory " + path + ": write the lock file");
  }
  return lock;
}

}  // namespace

Result<NvmeDirectory> lock_nvme_directory(const std::string& path) {
  std::string name = path;  // a trailing slash would follow a symlink
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  if (::mkdir(name.c_str(), 0700) != 0 && errno != EEXIST) {
    const int code = errno;
    Error error = system_error(code, "NVMe directory " + name + ": make it");
    if (code == ENOENT)
      error.message += "; its parent directory is missing: mkdir -p it, or give another path";
    return error;
  }
  struct stat st;
  if (::lstat(name.c_str(), &st) != 0) return system_error(errno, "NVMe directory " + name);
  if (Status status = check(name, st); !status) return status.error();
  NvmeDirectory made;
  made.directory.reset(::open(name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made.directory || ::fstat(made.directory.get(), &st) != 0) {
    return system_error(errno, "NVMe directory " + name + ": open");
  }
  if (Status status = check(name, st); !status) return status.error();
  auto lock = take_lock(name, made.directory.get());
  if (!lock) return lock.error();
  made.lock = std::move(*lock);
  return made;
}

}  // namespace clairfs
