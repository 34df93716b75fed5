// READs that wait for the source. When it hangs and the mount is to end they are given up, so that readers,
// and threads that sleep on one of their pages in the kernel, come back.
#pragma once

#define FUSE_USE_VERSION 314
#include <unordered_map>

#include <fuse_lowlevel.h>

#include "cache/base/mutex.h"
#include "fs/page_cache/asked_pages.h"

namespace clairfs {

/// Thread-safe. Only the caller that gets true from take() answers the request.
class PendingReads {
 public:
  /// `pages`: that the READ asks for, whole ones. False when READs are given up: the request is to be refused
  /// at once.
  bool add(fuse_req_t req, const PageRange& pages) {
    MutexLock lock(mutex_);
    if (given_up_ || !waiting_.emplace(req, pages).second) return false;
    asked_.add(pages);
    return true;
  }
  /// False when the request was given up, and so answered, meanwhile.
  bool take(fuse_req_t req) {
    MutexLock lock(mutex_);
    const auto found = waiting_.find(req);
    if (found == waiting_.end()) return false;
    asked_.remove(found->second);
    waiting_.erase(found);
    return true;
  }
  /// Those of all that wait.
  const AskedPages& asked() const { return asked_; }
  /// Fails all that wait with ENOTCONN, and all later ones. It needs no privilege, unlike cutting the
  /// connection to the kernel, which only works where fusectl is mounted.
  void give_up();

 private:
  AskedPages asked_;
  Mutex mutex_;  // comes before that of asked_
  std::unordered_map<fuse_req_t, PageRange> waiting_ GUARDED_BY(mutex_);
  bool given_up_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
