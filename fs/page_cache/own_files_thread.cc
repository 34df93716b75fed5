#include "fs/page_cache/own_files_thread.h"

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include <linux/close_range.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace clairfs {
namespace {

// Also stdin, stdout and stderr: whoever reads a daemon's output to its end waits for their last copy.
// Through the kernel and not libc: sanitizers keep one book of descriptors, by number, for the whole process.
void leave_all_files() {
  if (::syscall(SYS_close_range, 0U, UINT_MAX, CLOSE_RANGE_UNSHARE) == 0) return;
  if (::unshare(CLONE_FILES) != 0) return;  // from here on for Linux before 5.9
  std::vector<int> open;
  std::error_code failure;
  std::filesystem::directory_iterator entry("/proc/thread-self/fd", failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure))
    open.push_back(std::atoi(entry->path().filename().c_str()));
  for (const int fd : open) ::syscall(SYS_close, fd);
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
