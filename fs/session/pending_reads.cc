#include "fs/session/pending_reads.h"

#include <cerrno>
#include <utility>

namespace clairfs {

void PendingReads::give_up() {
  std::unordered_set<fuse_req_t> waiting;
  {
    MutexLock lock(mutex_);
    given_up_ = true;
    waiting.swap(waiting_);
  }
  for (const fuse_req_t req : waiting) fuse_reply_err(req, ENOTCONN);
}

}  // namespace clairfs
