// A thread whose file table is its own, and empty.
//
// Its purpose: a call into our own mount waits for our own FUSE threads. When the daemon is killed in the
// middle of one, no thread answers it any more, and the kernel aborts the mount only when the FUSE device is
// closed for the last time; a thread that waits in the kernel and shares the process's descriptors would keep
// it open for ever. This one does not share them.
#pragma once

#include <functional>
#include <semaphore>
#include <string>

#include "cache/base/thread.h"

namespace clairfs {

/// Runs calls for one other thread at a time, which waits for each. The calls cannot print. Where the kernel
/// refuses a separate table (seccomp), the thread shares the process's.
class OwnFilesThread {
 public:
  explicit OwnFilesThread(const std::string& name);
  ~OwnFilesThread();

  void run(const std::function<void()>& call);

 private:
  void serve();

  const std::function<void()>* call_ = nullptr;  // null: the end
  std::binary_semaphore posted_{0};              // guard call_ in turns
  std::binary_semaphore done_{0};
  NamedThread thread_;  // last: uses the others
};

}  // namespace clairfs
