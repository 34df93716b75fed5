// ReadRuns: which READs only go on where the last one of the same thread ended.
//
// Of records in large files such a READ often is not of the next sample but of what lies behind the last: the
// kernel reads ahead, and a buffered reader takes a whole block for the last bytes of a record. It says
// nothing of where the reader is, unless the reader goes through the file.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "plan/tracking/order_score.h"
#include "plan/tracking/rank_trackers.h"

namespace clairfs {

/// Thread-safe. Remembers some thousand threads, some tens of bytes each.
class ReadRuns {
 public:
  /// A READ of `length` bytes has arrived: Access::read, read_on where it begins at the end of the thread's
  /// last one, or read_through where the thread has gone on so for longer than any readahead. A thread of id
  /// 0 is not known: each READ of it stands for itself.
  Access note(ThreadId thread, FileId file, uint64_t offset, uint64_t length);

 private:
  struct Run {
    FileId file;
    uint64_t begin = 0;  // of the first READ
    uint64_t end = 0;    // of the furthest
    uint64_t bytes = 0;  // of all of them
  };

  Mutex mutex_;                                                // leaf
  std::unordered_map<uint64_t, Run> runs_ GUARDED_BY(mutex_);  // by thread
};

}  // namespace clairfs
