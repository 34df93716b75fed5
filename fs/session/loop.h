// The threads that take a libfuse session's requests.
#pragma once

#define FUSE_USE_VERSION 314
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <fuse_lowlevel.h>

#include "cache/base/thread.h"

namespace clairfs {

/// Owned by one thread. REQUIRES of stop(): not called from a thread of the loop.
class FuseLoop {
 public:
  ~FuseLoop() { stop(); }

  /// Serves `session`, which outlives this, by `threads` threads "NAME-0", "NAME-1", ... If they end by
  /// themselves, since nothing is mounted any more, the last of them calls `on_end`. There are fewer if the
  /// system grants no more; throws std::system_error if it grants none.
  void start(fuse_session* session, const std::string& name, unsigned threads,
             std::function<void()> on_end = {});
  /// Ends and joins the threads. May be called more than once.
  void stop();

 private:
  void serve();
  void leave();

  fuse_session* session_ = nullptr;
  std::function<void()> on_end_;
  std::atomic<unsigned> serving_{0};
  std::atomic<bool> stopping_{false};
  std::vector<NamedThread> threads_;
};

}  // namespace clairfs
