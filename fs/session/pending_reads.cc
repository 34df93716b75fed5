#include "fs/session/pending_reads.h"

#include <cerrno>
#include <utility>

namespace clairfs {

void PendingReads::give_up() {
  std::unordered_map<fuse_req_t, PageRange> waiting;
  {
    MutexLock lock(mutex_);
    given_up_ = true;
    waiting.swap(waiting_);
  }
  for (const auto& [req, pages] : waiting) {
    asked_.remove(pages);
    fuse_reply_err(req, ENOTCONN);
  }
}

}  // namespace clairfs
