#include "mount-helper/serve/mount_point.h"

#include <chrono>

#include <sys/wait.h>
#include <unistd.h>

#include "mount-helper/options/exit_status.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a process whose mount has ended ends by force if what is destroyed last hangs") {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::alarm(60);  // lest it stays
    const MountOptions options{};
    CapturedLog log;
    MountPoint mount_point(options, log.logger());
    mount_point.finish(true, std::chrono::milliseconds(1));
    for (;;) ::pause();
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == exit_system);
}
