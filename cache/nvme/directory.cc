#include "cache/nvme/directory.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "cache/base/text.h"
#include "cache/nvme/index.h"

namespace clairfs {
namespace {

constexpr const char* kLock = "lock";

Error refused(int code, const std::string& path, const std::string& why) {
  return Error{code, "NVMe directory " + path + ": " + why};
}

// Whether `path` is there for other uses than this one.
bool is_shared(const std::string& path, const struct stat& st) {
  std::error_code failure;
  return (st.st_mode & S_ISVTX) != 0 || !std::filesystem::is_empty(path, failure) || failure;
}

std::string own_inside(const std::string& path) {
  return fmt::format("give a new one, for example {}", (std::filesystem::path(path) / "clairfs").string());
}

Status check(const std::string& path, const struct stat& st) {
  if (S_ISLNK(st.st_mode)) return refused(ELOOP, path, "is a symlink; give the directory that it points to");
  if (!S_ISDIR(st.st_mode)) return refused(ENOTDIR, path, "is not a directory; give another path");
  if (st.st_uid != ::geteuid()) {
    return refused(EPERM, path,
                   fmt::format("belongs to user {}, not to user {} who mounts; {}", st.st_uid, ::geteuid(),
                               (st.st_mode & S_ISVTX) != 0 ? own_inside(path) : "chown it or give another"));
  }
  if ((st.st_mode & 077) != 0) {
    return refused(
        EPERM, path,
        fmt::format("is open to others (mode {:o}), and cached data would be too; {}", st.st_mode & 07777,
                    is_shared(path, st) ? own_inside(path) : "chmod 700 " + path));
  }
  return {};
}

// The two lines of a lock file. Empty if it says nothing yet, or lost what it said when the power failed.
struct LockText {
  std::string pid;
  std::string dataset;
};

LockText text_of(int lock) {
  std::string text(20 + PATH_MAX, '\0');  // a number of 64 bits and a path
  const ssize_t n = ::pread(lock, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  std::erase(text, '\0');
  const size_t line = std::min(text.find('\n'), text.size());
  return {std::string(trimmed(text.substr(0, line))), std::string(trimmed(text.substr(line)))};
}

std::string owner_of(int lock) {
  const std::string pid = text_of(lock).pid;
  return pid.empty() ? "another process" : "process " + pid;
}

Fd open_lock(int directory) {
  return Fd(::openat(directory, kLock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
}

bool has_our_lock(int directory) {
  const Fd lock = open_lock(directory);
  struct stat st;
  if (!lock || ::fstat(lock.get(), &st) != 0 || !S_ISREG(st.st_mode)) return false;
  const std::string pid = text_of(lock.get()).pid;
  return pid.empty() || parse_whole<pid_t>(pid);
}

bool may_be_ours(const std::string& name, bool locked) {
  if (name == "lost+found") return true;
  return locked && (name.starts_with("segment-") || name == kLock || name == NvmeIndexFile::kName ||
                    name == NvmeIndexFile::kNewName);
}

// A store would write over files of the same names.
Status check_entries(const std::string& path, int directory) {
  if (NvmeIndexFile::exists(directory)) return {};
  const bool locked = has_our_lock(directory);
  std::error_code failure;
  for (std::filesystem::directory_iterator entry(path, failure), end; !failure && entry != end;
       entry.increment(failure)) {
    const std::string name = entry->path().filename();
    if (may_be_ours(name, locked)) continue;
    return refused(ENOTEMPTY, path,
                   fmt::format("holds {}, which is not of clairfs; {}", escaped(name), own_inside(path)));
  }
  if (failure) return system_error(failure.value(), "NVMe directory " + path);
  return {};
}

Result<Fd> take_lock(const std::string& path, int directory, const std::string& dataset) {
  Fd lock(::openat(directory, kLock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
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
  const std::string text = fmt::format("{}\n{}\n", ::getpid(), dataset);
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const int code = errno != 0 ? errno : ENOSPC;
    return system_error(code, "NVMe directory " + path + ": write the lock file");
  }
  return lock;
}

}  // namespace

Result<NvmeDirectory> lock_nvme_directory(const std::string& path, const std::string& dataset) {
  std::string name = path;  // a trailing slash would follow a symlink
  while (name.size() > 1 && name.back() == '/') name.pop_back();
  if (::mkdir(name.c_str(), 0700) != 0 && errno != EEXIST) {
    const int code = errno;
    Error error = system_error(code, "make NVMe directory " + name);
    if (code == ENOENT) {
      error.message += "; its parent directory is missing: mkdir -p " +
                       std::filesystem::path(name).parent_path().string() + ", or give another path";
    }
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
  if (Status status = check_entries(name, made.directory.get()); !status) return status.error();
  auto lock = take_lock(name, made.directory.get(), dataset);
  if (!lock) return lock.error();
  made.lock = std::move(*lock);
  return made;
}

Status check_nvme_directory(const std::string& path) {
  struct stat st;
  const bool there = ::lstat(path.c_str(), &st) == 0;
  if (!there && errno != ENOENT) return system_error(errno, "NVMe directory " + path);
  if (there) {
    if (Status status = check(path, st); !status) return status;
  }
  const std::string written = there ? path : std::filesystem::path(path).parent_path().string();
  if (::access(written.c_str(), W_OK | X_OK) != 0) {
    Error error = system_error(errno, fmt::format("NVMe directory {}: write to {}", path, written));
    error.message += "; give a directory that can be written";
    return error;
  }
  if (!there) return {};
  const Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return system_error(errno, "NVMe directory " + path + ": open");
  return check_entries(path, directory.get());
}

std::string nvme_directory_dataset(const std::string& path) {
  const Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory) return {};
  const Fd lock = open_lock(directory.get());
  return lock ? text_of(lock.get()).dataset : std::string();
}

}  // namespace clairfs
