#include "fs/own_files_thread.h"

#include <climits>

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace clairfs {
namespace {

// Also stdin, stdout and stderr: whoever reads a daemon's output to its end waits for their last copy.
// Through the kernel and not libc: sanitizers keep one book of descriptors, by number, for the whole process.
void leave_all_files() {
  if (::unshare(CLONE_FILES) != 0) return;
  if (::syscall(SYS_close_range, 0U, UINT_MAX, 0) == 0) return;
  rlimit limit{};  // before Linux 5.9
  ::getrlimit(RLIMIT_NOFILE, &limit);
  for (rlim_t fd = 0; fd < limit.rlim_cur; ++fd) ::syscall(SYS_close, fd);
}

}  // namespace

OwnFilesThread::OwnFilesThread(const std::string& name) : thread_(name, [this] { serve(); }) {
  done_.acquire();
}

OwnFilesThread::~OwnFilesThread() {
  call_ = nullptr;
  posted_.release();
}

void OwnFilesThread::run(const std::function<void()>& call) {
  call_ = &call;
  posted_.release();
  done_.acquire();
}

void OwnFilesThread::serve() {
  leave_all_files();
  for (;;) {
    done_.release();
    posted_.acquire();
    if (call_ == nullptr) return;
    (*call_)();
  }
}

}  // namespace clairfs
