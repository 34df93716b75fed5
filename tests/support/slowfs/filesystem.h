// The slow filesystem: a directory served read-only over low-level FUSE as a parallel filesystem would serve
// it.
//
// The thread that reads /dev/fuse asks the Server when a request is to be answered; the request then sleeps
// in the DelayQueue and is carried out against the directory when it is due. So any number of requests sleep
// at once, and a hang holds up nothing else. An interrupted request that hangs ends with EINTR, so that its
// process can be killed.
// `.slowfs/` under the mount's root (reachable by name, not listed) is answered at once and counted nowhere.
#pragma once

#define FUSE_USE_VERSION 314
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include "cache/base/fd.h"
#include "tests/support/slowfs/delay_queue.h"
#include "tests/support/slowfs/server.h"

namespace clairfs::slowfs {

struct Options {
  std::string source;
  ServerOptions server;
  double attr_timeout = 0;  ///< seconds that the kernel may keep entries and attributes
  bool cached = false;      ///< the kernel may keep file data
};

/// Its operations run on one thread, the session's. The destructor answers what still sleeps with EIO; the
/// session must be alive then and its loop ended. Errors of the constructor: std::runtime_error (the source
/// does not open).
class Filesystem {
 public:
  explicit Filesystem(const Options& options);

  /// For fuse_session_new, with the Filesystem as user data.
  static fuse_lowlevel_ops operations();

 private:
  struct Node {
    std::string path;
    ino_t inode = 0;
  };
  struct DirectoryEntry {
    std::string name;
    struct stat st;
  };
  /// What an open file or directory stands for: one of the three.
  struct Handle {
    Fd file;
    std::string text;  ///< of the counters, as they were at open
    std::vector<DirectoryEntry> listing;
  };
  using Work = std::function<void()>;

  void lookup(fuse_req_t req, fuse_ino_t parent, const char* name);
  void getattr(fuse_req_t req, fuse_ino_t ino);
  void readlink(fuse_req_t req, fuse_ino_t ino);
  void open(fuse_req_t req, fuse_ino_t ino, const fuse_file_info* fi);
  void read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, const fuse_file_info* fi);
  void write(fuse_req_t req, fuse_ino_t ino, const char* data, size_t size);
  void release(fuse_req_t req, const fuse_file_info* fi) EXCLUDES(mutex_);
  void opendir(fuse_req_t req, fuse_ino_t ino, const fuse_file_info* fi);
  void readdir(fuse_req_t req, size_t size, off_t offset, const fuse_file_info* fi);
  void statfs(fuse_req_t req);

  /// Does `work`, which replies, when the server has the request answered; or replies with the fault.
  void serve(fuse_req_t req, Op op, const std::string& path, uint64_t bytes, Work work, uint64_t offset = 0);
  void reply_attr(fuse_req_t req, const struct stat& st) const;
  void reply_entry(fuse_req_t req, fuse_ino_t ino, const struct stat& st) const;
  void reply_open(fuse_req_t req, fuse_file_info fi, Handle handle) EXCLUDES(mutex_);
  /// Valid until its release.
  const Handle& handle_of(const fuse_file_info* fi) EXCLUDES(mutex_);
  /// Names and types of one directory. 0 or an errno value.
  int list(const std::string& path, std::vector<DirectoryEntry>& listing) const;
  std::string path_of(fuse_ino_t ino) EXCLUDES(mutex_);
  fuse_ino_t intern(const std::string& path, ino_t inode) EXCLUDES(mutex_);

  const Fd root_;
  const bool cached_;
  const double attr_timeout_;

  Mutex mutex_;                                ///< a leaf
  std::deque<Node> nodes_ GUARDED_BY(mutex_);  ///< by node number; grows with the paths seen, never shrinks
  std::unordered_map<std::string, fuse_ino_t> by_path_ GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, Handle> handles_ GUARDED_BY(mutex_);
  uint64_t next_handle_ GUARDED_BY(mutex_) = 0;

  Server server_;
  DelayQueue queue_;  ///< last: its jobs use all of the above until it is gone
};

}  // namespace clairfs::slowfs
