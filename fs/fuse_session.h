// The mount: a libfuse low-level session with threads of its own.
//
// Life: mount() makes the mount point live: whoever touches it from then on waits. That may need to start a
// program (fusermount3), so it comes before what must not be forked: MPI, threads. start() begins to serve
// and returns once the kernel has agreed on the protocol; stop() detaches the mount and ends the threads.
// When somebody else unmounts (umount, fusermount3 -u), the threads end by themselves and `on_unmounted` is
// called.
//
// libfuse 3.14 never tells the kernel that directory operations may run in parallel, so its answer to INIT is
// amended on its way out (see write_reply in the .cc).
#pragma once

#define FUSE_USE_VERSION 314
#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fuse_lowlevel.h>
#include <sys/types.h>

#include "cache/base/fd.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "fs/fuse_context.h"

namespace clairfs {

struct FuseOptions {
  std::string source;  ///< shown in the mount table
  std::string mountpoint;
  bool allow_other = false;
  bool kernel_read_only = false;  ///< `-o ro`: control files cannot be written then
  bool no_exec = false;
  /// Threads that take requests. Two let a listing and a read overlap; more than 8 find nothing to do, since
  /// none waits for data.
  unsigned threads = 2;
};

/// Thread-safe after start().
class FuseSession {
 public:
  /// Errors: what libfuse or fusermount3 said, with the fix where it is known.
  static Result<std::unique_ptr<FuseSession>> mount(const FuseOptions& options, Logger& log);
  ~FuseSession();

  /// Serves requests out of `context`, which outlives this. Errors: ETIMEDOUT if the kernel does not begin to
  /// talk.
  Status start(FuseContext& context, std::function<void()> on_unmounted);
  /// The FUSE device; it stays open until the destructor, or let_go().
  int device() const { return fuse_session_fd(session_); }

  /// Unmounts (lazily if busy) and ends the threads; answers that are still on their way do no harm until the
  /// destructor. May be called more than once, not from a FUSE thread.
  void stop();
  /// The first half of stop(): nobody finds the mount any more.
  void detach();
  /// Closes the device under whoever still uses it: for a process that ends with threads that do not, which
  /// would keep it open.
  void let_go();

 private:
  FuseSession(const FuseOptions& options, Logger& log) : options_(options), log_(log) {}
  static void on_init(void* userdata, fuse_conn_info* connection);
  void serve();
  void raise_readahead();

  const FuseOptions options_;
  Logger& log_;
  FuseContext* context_ = nullptr;  // what libfuse hands to the operations points here; set by start()
  fuse_session* session_ = nullptr;
  Fd nothing_;  // /dev/null, opened early: for let_go()
  std::function<void()> on_unmounted_;
  std::atomic<unsigned> serving_{0};
  std::atomic<bool> stopping_{false};
  bool mounted_ = false;
  dev_t device_ = 0;  ///< of the mount; set by start()
  std::vector<NamedThread> threads_;
};

}  // namespace clairfs
