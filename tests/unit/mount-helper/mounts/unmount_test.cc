#include "mount-helper/mounts/unmount.h"

#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

TEST_CASE("a mount whose daemon was faster to end it is as good as unmounted") {
  const TemporaryDirectory directory;
  CHECK(unmount(directory.path(), false).ok());
  CHECK(unmount(directory.path(), true).ok());
}
