#include "fs/page_cache/own_files_thread.h"

#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("calls on a thread with files of its own see none of the process's, nor it theirs") {
  const Fd ours(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(ours);
  OwnFilesThread thread("own-files");
  std::thread::id ran_on;
  long theirs = -1;
  thread.run([&] {
    ran_on = std::this_thread::get_id();
    // Through the kernel, as in page_pusher.cc: sanitizers keep one book of descriptors for the process.
    CHECK(::syscall(SYS_fcntl, ours.get(), F_GETFD) == -1);
    theirs = ::syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDONLY | O_CLOEXEC);
  });
  CHECK(ran_on != std::this_thread::get_id());
  CHECK(theirs == 0);  // the first number of an empty table
  CHECK(::fcntl(ours.get(), F_GETFD) >= 0);
  int calls = 0;
  for (int i = 0; i < 100; ++i) thread.run([&] { ++calls; });
  CHECK(calls == 100);
}
