// Mounting and detaching by libfuse: what the mount of the dataset and the door for plans have in common.
#pragma once

#define FUSE_USE_VERSION 314
#include <memory>
#include <string>

#include <fuse_lowlevel.h>

#include "cache/base/result.h"

namespace clairfs {

struct FuseOptions {
  std::string source;  ///< shown in the mount table
  std::string mountpoint;
  bool allow_other = false;
  bool read_only = false;  ///< `-o ro`: plans are taken by the control socket only
  bool no_exec = false;
  /// Threads that take requests. Two let a listing and a read overlap; more than 8 find nothing to do, since
  /// none waits for data.
  unsigned threads = 2;
};

struct DestroySession {
  void operator()(fuse_session* session) const { fuse_session_destroy(session); }
};
/// Its end closes the device; what is mounted stays mounted, and is dead.
using SessionHandle = std::unique_ptr<fuse_session, DestroySession>;

/// Mounts a new session at `mountpoint`; processes that touch it wait until it is served. `userdata` is a
/// SessionData, which fuse_req_userdata() gives. Errors: the words of libfuse or fusermount3, with the fix
/// where it is known.
Result<SessionHandle> mount_session(const FuseOptions& options, const std::string& mountpoint, bool read_only,
                                    const fuse_lowlevel_ops& ops, void* userdata);

/// Asks the kernel for the features that a session uses; to be called in its INIT.
void negotiate(fuse_conn_info* connection);

/// Unmounts lazily, since files may be open; by fusermount3 where that takes privileges that are missing.
/// Errors: one line.
Status detach_mount(const std::string& mountpoint);

}  // namespace clairfs
