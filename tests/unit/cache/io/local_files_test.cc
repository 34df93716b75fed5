#include "cache/io/local_files.h"

#include <fcntl.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"
#include "tests/unit/cache/io/io_support.h"

using namespace clairfs;
using namespace clairfs::testing;

TEST_CASE("a filesystem counts as local only if it is known to be") {
  TemporaryDirectory dir;
  const auto is_local = [](const std::string& path) {
    return is_on_local_filesystem(Fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)).get());
  };
  CHECK(!is_local("/proc"));
  CHECK(!is_local("/nowhere"));
  TmpfsMount tmpfs(dir.path(), 0, "size=64k");
  if (tmpfs.mounted()) CHECK(is_local(dir.path()));
}
