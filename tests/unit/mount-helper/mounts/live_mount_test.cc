#include "mount-helper/mounts/live_mount.h"

#include <cerrno>

#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

TEST_CASE("a path that is on no clairfs mount is told so") {
  const TemporaryDirectory directory;
  const auto mount = find_clairfs_mount(directory.path());
  REQUIRE(!mount);
  CHECK(mount.error().message.find(directory.path() + " is not on a clairfs mount") != std::string::npos);
  CHECK(find_clairfs_mount(directory.path() + "/none").error().code == ENOENT);
}

TEST_CASE("a directory that answers is told from what is missing") {
  const TemporaryDirectory directory;
  CHECK(check_answers(directory.path()).ok());
  CHECK(check_answers(directory.path() + "/none").error().code == ENOENT);
}
