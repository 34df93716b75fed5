#include "mount-helper/mounts/resolve_path.h"

#include <filesystem>

#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

TEST_CASE("mountpoints are resolved through symlinks and dots") {
  const TemporaryDirectory directory;
  const std::string real = directory.make("real");
  std::filesystem::create_directory_symlink(real, directory.path() + "/link");
  CHECK(*resolve_path(directory.path() + "/./link/../link/") == real);
}
