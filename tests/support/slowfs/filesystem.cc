#include "tests/support/slowfs/filesystem.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <vector>

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

namespace clairfs::slowfs {
namespace {

// Enough to keep a local disk busy; sleeping requests need none.
constexpr size_t worker_threads = 16;

// Node numbers: 1 is the root (FUSE_ROOT_ID), then `.slowfs` and its files, then whatever is looked up.
constexpr fuse_ino_t control_dir = 2;
constexpr fuse_ino_t counters_file = 3;
constexpr fuse_ino_t control_file = 4;
constexpr fuse_ino_t first_free = 5;

bool is_control(fuse_ino_t ino) {
  return ino >= control_dir && ino < first_free;
}

struct stat control_stat(fuse_ino_t ino) {
  struct stat st {};
  st.st_ino = ino;
  st.st_nlink = 1;
  st.st_uid = ::getuid();
  st.st_gid = ::getgid();
  if (ino == control_dir) st.st_mode = S_IFDIR | 0755;
  if (ino == counters_file) st.st_mode = S_IFREG | 0444;
  if (ino == control_file) st.st_mode = S_IFREG | 0666;
  return st;
}

/// "" for the root is "." to the system.
const char* at(const std::string& path) {
  return path.empty() ? "." : path.c_str();
}

Fd open_directory(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw std::runtime_error(path + ": " + std::strerror(errno));
  return fd;
}

Filesystem* self(fuse_req_t req) {
  return static_cast<Filesystem*>(fuse_req_userdata(req));
}

}  // namespace

Filesystem::Filesystem(const Options& options)
    : root_(open_directory(options.source)),
      cached_(options.cached),
      attr_timeout_(options.attr_timeout),
      nodes_(first_free),
      server_(options.server),
      queue_(worker_threads) {}

std::string Filesystem::path_of(fuse_ino_t ino) {
  MutexLock lock(mutex_);
  return nodes_.at(ino).path;
}

/// A path whose file was replaced gets a new number: the kernel must not take the one for the other.
fuse_ino_t Filesystem::intern(const std::string& path, ino_t inode) {
  MutexLock lock(mutex_);
  const auto [found, fresh] = by_path_.try_emplace(path, nodes_.size());
  if (!fresh && nodes_[found->second].inode == inode) return found->second;
  found->second = nodes_.size();
  nodes_.push_back({path, inode});
  return found->second;
}

void Filesystem::reply_open(fuse_req_t req, fuse_file_info fi, Handle handle) {
  {
    MutexLock lock(mutex_);
    fi.fh = next_handle_++;
    handles_.emplace(fi.fh, std::move(handle));
  }
  // A caller that was interrupted has gone, and no release will come.
  if (fuse_reply_open(req, &fi) != 0) {
    MutexLock lock(mutex_);
    handles_.erase(fi.fh);
  }
}

const Filesystem::Handle& Filesystem::handle_of(const fuse_file_info* fi) {
  MutexLock lock(mutex_);
  return handles_.at(fi->fh);
}

void Filesystem::serve(fuse_req_t req, Op op, const std::string& path, uint64_t bytes, Work work,
                       uint64_t offset) {
  const Admission admission = server_.admit(op, path, bytes, offset);
  const auto tag = admission.hung ? reinterpret_cast<uintptr_t>(req) : 0;
  TimePoint due = admission.due;
  if (tag != 0) {
    // Interrupts are handled on this thread too, so none comes between these lines and the push.
    fuse_req_interrupt_func(
        req,
        [](fuse_req_t r, void* queue) {
          static_cast<DelayQueue*>(queue)->interrupt(reinterpret_cast<uintptr_t>(r));
        },
        &queue_);
    if (fuse_req_interrupted(req) != 0) due = TimePoint::min();
  }
  const auto job = [this, req, eio = admission.eio, work = std::move(work)](Outcome outcome) {
    server_.finished();
    if (outcome == Outcome::interrupted) {
      fuse_reply_err(req, EINTR);
    } else if (eio || outcome == Outcome::shut_down) {
      fuse_reply_err(req, EIO);
    } else {
      work();
    }
  };
  queue_.push(due, job, tag);
}

void Filesystem::reply_attr(fuse_req_t req, const struct stat& st) const {
  fuse_reply_attr(req, &st, attr_timeout_);
}

void Filesystem::reply_entry(fuse_req_t req, fuse_ino_t ino, const struct stat& st) const {
  fuse_entry_param entry{};
  entry.ino = ino;
  entry.attr = st;
  entry.attr_timeout = attr_timeout_;
  entry.entry_timeout = attr_timeout_;
  fuse_reply_entry(req, &entry);
}

void Filesystem::lookup(fuse_req_t req, fuse_ino_t parent, const char* name) {
  const std::string_view wanted = name;
  if (parent == FUSE_ROOT_ID && wanted == ".slowfs")
    return reply_entry(req, control_dir, control_stat(control_dir));
  if (parent == control_dir) {
    if (wanted == "counters") return reply_entry(req, counters_file, control_stat(counters_file));
    if (wanted == "control") return reply_entry(req, control_file, control_stat(control_file));
    fuse_reply_err(req, ENOENT);
    return;
  }
  std::string path = path_of(parent);
  path = path.empty() ? name : path + "/" + name;
  serve(req, Op::lookup, path, 0, [this, req, path] {
    struct stat st {};
    if (::fstatat(root_.get(), at(path), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      fuse_reply_err(req, errno);
      return;
    }
    reply_entry(req, intern(path, st.st_ino), st);
  });
}

void Filesystem::getattr(fuse_req_t req, fuse_ino_t ino) {
  if (is_control(ino)) return reply_attr(req, control_stat(ino));
  const std::string path = path_of(ino);
  serve(req, Op::getattr, path, 0, [this, req, path] {
    struct stat st {};
    if (::fstatat(root_.get(), at(path), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      fuse_reply_err(req, errno);
      return;
    }
    reply_attr(req, st);
  });
}

void Filesystem::readlink(fuse_req_t req, fuse_ino_t ino) {
  const std::string path = path_of(ino);
  serve(req, Op::readlink, path, 0, [this, req, path] {
    std::string target(PATH_MAX, '\0');
    const ssize_t length = ::readlinkat(root_.get(), path.c_str(), target.data(), target.size() - 1);
    if (length < 0) {
      fuse_reply_err(req, errno);
      return;
    }
    fuse_reply_readlink(req, target.c_str());
  });
}

void Filesystem::open(fuse_req_t req, fuse_ino_t ino, const fuse_file_info* fi) {
  fuse_file_info reply = *fi;
  reply.direct_io = cached_ && !is_control(ino) ? 0 : 1;
  reply.keep_cache = cached_ ? 1 : 0;
  if (is_control(ino)) {
    reply_open(req, reply, {.file = Fd(), .text = server_.counters(), .listing = {}});
    return;
  }
  if ((fi->flags & O_ACCMODE) != O_RDONLY) {
    fuse_reply_err(req, EROFS);
    return;
  }
  const std::string path = path_of(ino);
  serve(req, Op::open, path, 0, [this, req, path, reply] {
    Fd fd(::openat(root_.get(), path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd) {
      fuse_reply_err(req, errno);
      return;
    }
    reply_open(req, reply, {.file = std::move(fd), .text = {}, .listing = {}});
  });
}

void Filesystem::read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, const fuse_file_info* fi) {
  if (is_control(ino)) {
    const std::string& text = handle_of(fi).text;
    const size_t from = std::min(static_cast<size_t>(offset), text.size());
    fuse_reply_buf(req, text.data() + from, std::min(size, text.size() - from));
    return;
  }
  const int fd = handle_of(fi).file.get();
  struct stat st {};
  const bool known = ::fstat(fd, &st) == 0;
  const off_t left = known ? std::max<off_t>(0, st.st_size - offset) : 0;
  const size_t bytes = std::min(size, static_cast<size_t>(left));
  const auto answer = [req, fd, size, offset] {
    std::vector<char> buffer(size);
    const ssize_t got = ::pread(fd, buffer.data(), size, offset);
    if (got < 0) {
      fuse_reply_err(req, errno);
      return;
    }
    fuse_reply_buf(req, buffer.data(), static_cast<size_t>(got));
  };
  serve(req, Op::read, path_of(ino), bytes, answer, static_cast<uint64_t>(offset));
}

void Filesystem::write(fuse_req_t req, fuse_ino_t ino, const char* data, size_t size) {
  if (ino != control_file) {
    fuse_reply_err(req, EROFS);
    return;
  }
  std::istringstream lines(std::string(data, size));
  for (std::string line; std::getline(lines, line);) {
    const Status status = server_.command(line);
    if (!status) {
      fuse_reply_err(req, status.error().code);
      return;
    }
    if (line == "clear") queue_.release_held();
  }
  fuse_reply_write(req, size);
}

void Filesystem::release(fuse_req_t req, const fuse_file_info* fi) {
  {
    MutexLock lock(mutex_);
    handles_.erase(fi->fh);
  }
  fuse_reply_err(req, 0);
}

/// The listing is read, and paid for, here: FUSE asks for it in pieces of a page, a parallel filesystem sends
/// it in large ones.
void Filesystem::opendir(fuse_req_t req, fuse_ino_t ino, const fuse_file_info* fi) {
  if (ino == control_dir) {
    reply_open(
        req, *fi,
        {.file = Fd(),
         .text = {},
         .listing = {{"counters", control_stat(counters_file)}, {"control", control_stat(control_file)}}});
    return;
  }
  const std::string path = path_of(ino);
  serve(req, Op::readdir, path, 0, [this, req, path, reply = *fi] {
    Handle handle;
    if (const int error = list(path, handle.listing); error != 0) {
      fuse_reply_err(req, error);
      return;
    }
    reply_open(req, reply, std::move(handle));
  });
}

int Filesystem::list(const std::string& path, std::vector<DirectoryEntry>& listing) const {
  const int fd = ::openat(root_.get(), at(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::fdopendir(fd), ::closedir);
  if (!dir) return errno;
  errno = 0;
  while (const dirent* entry = ::readdir(dir.get())) {
    struct stat st {};
    st.st_ino = entry->d_ino;
    st.st_mode = DTTOIF(entry->d_type);
    listing.push_back({entry->d_name, st});
  }
  return errno;
}

void Filesystem::readdir(fuse_req_t req, size_t size, off_t offset, const fuse_file_info* fi) {
  const auto& listing = handle_of(fi).listing;
  std::vector<char> buffer(size);
  size_t used = 0;
  for (auto i = static_cast<size_t>(offset); i < listing.size(); ++i) {
    const auto& [name, st] = listing[i];
    const size_t need = fuse_add_direntry(req, buffer.data() + used, size - used, name.c_str(), &st,
                                          static_cast<off_t>(i + 1));
    if (need > size - used) break;
    used += need;
  }
  fuse_reply_buf(req, buffer.data(), used);
}

void Filesystem::statfs(fuse_req_t req) {
  serve(req, Op::statfs, "", 0, [this, req] {
    struct statvfs st {};
    if (::fstatvfs(root_.get(), &st) != 0) {
      fuse_reply_err(req, errno);
      return;
    }
    fuse_reply_statfs(req, &st);
  });
}

fuse_lowlevel_ops Filesystem::operations() {
  fuse_lowlevel_ops ops{};
  ops.init = [](void*, fuse_conn_info* conn) {
    // As many as a client likes to have in flight; the default of 12 would be a limit of the emulation.
    conn->max_background = 1024;
    conn->want |= conn->capable & FUSE_CAP_PARALLEL_DIROPS;
  };
  ops.lookup = [](fuse_req_t req, fuse_ino_t parent, const char* name) {
    self(req)->lookup(req, parent, name);
  };
  ops.getattr = [](fuse_req_t req, fuse_ino_t ino, fuse_file_info*) { self(req)->getattr(req, ino); };
  ops.setattr = [](fuse_req_t req, fuse_ino_t ino, struct stat*, int, fuse_file_info*) {
    if (ino == control_file) return self(req)->getattr(req, ino);  // a shell's > truncates first
    fuse_reply_err(req, EROFS);
  };
  ops.readlink = [](fuse_req_t req, fuse_ino_t ino) { self(req)->readlink(req, ino); };
  ops.open = [](fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) { self(req)->open(req, ino, fi); };
  ops.read = [](fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, fuse_file_info* fi) {
    self(req)->read(req, ino, size, offset, fi);
  };
  ops.write = [](fuse_req_t req, fuse_ino_t ino, const char* data, size_t size, off_t, fuse_file_info*) {
    self(req)->write(req, ino, data, size);
  };
  ops.release = [](fuse_req_t req, fuse_ino_t, fuse_file_info* fi) { self(req)->release(req, fi); };
  ops.opendir = [](fuse_req_t req, fuse_ino_t ino, fuse_file_info* fi) { self(req)->opendir(req, ino, fi); };
  ops.readdir = [](fuse_req_t req, fuse_ino_t, size_t size, off_t offset, fuse_file_info* fi) {
    self(req)->readdir(req, size, offset, fi);
  };
  ops.releasedir = ops.release;
  ops.statfs = [](fuse_req_t req, fuse_ino_t) { self(req)->statfs(req); };
  ops.mkdir = [](fuse_req_t req, fuse_ino_t, const char*, mode_t) { fuse_reply_err(req, EROFS); };
  ops.mknod = [](fuse_req_t req, fuse_ino_t, const char*, mode_t, dev_t) { fuse_reply_err(req, EROFS); };
  ops.unlink = [](fuse_req_t req, fuse_ino_t, const char*) { fuse_reply_err(req, EROFS); };
  ops.rmdir = [](fuse_req_t req, fuse_ino_t, const char*) { fuse_reply_err(req, EROFS); };
  ops.rename = [](fuse_req_t req, fuse_ino_t, const char*, fuse_ino_t, const char*, unsigned) {
    fuse_reply_err(req, EROFS);
  };
  ops.symlink = [](fuse_req_t req, const char*, fuse_ino_t, const char*) { fuse_reply_err(req, EROFS); };
  ops.link = [](fuse_req_t req, fuse_ino_t, fuse_ino_t, const char*) { fuse_reply_err(req, EROFS); };
  return ops;
}

}  // namespace clairfs::slowfs
