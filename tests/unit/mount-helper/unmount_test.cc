#include "mount-helper/unmount.h"

#include <catch2/catch.hpp>

#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

TEST_CASE("a mount whose daemon was faster to end it is as good as unmounted") {
  const TemporaryDirectory directory;
  CHECK(unmount(directory.path(), false).ok());
  CHECK(unmount(directory.path(), true).ok());
}
