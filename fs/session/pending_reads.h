// READs that wait for the source. When it hangs and the mount is to end they are given up, so that readers,
// and threads that sleep on one of their pages in the kernel, come back.
#pragma once

#define FUSE_USE_VERSION 314
#include <unordered_set>

#include <fuse_lowlevel.h>

#include "cache/base/mutex.h"

namespace clairfs {

/// Thread-safe. Only the caller that gets true from take() answers the request.
class PendingReads {
 public:
  /// False when READs are given up: the request is to be refused at once.
  bool add(fuse_req_t req) {
    MutexLock lock(mutex_);
    return !given_up_ && waiting_.insert(req).second;
  }
  /// False when the request was given up, and so answered, meanwhile.
  bool take(fuse_req_t req) {
    MutexLock lock(mutex_);
    return waiting_.erase(req) == 1;
  }
  /// Fails all that wait with ENOTCONN, and all later ones. It needs no privilege, unlike cutting the
  /// connection to the kernel, which only works where fusectl is mounted.
  void give_up();

 private:
  Mutex mutex_;  // leaf
  std::unordered_set<fuse_req_t> waiting_ GUARDED_BY(mutex_);
  bool given_up_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
