#include "mount-helper/serve/bench_switches.h"

#include <cstdlib>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a benchmark switches off what it names, and nothing else does") {
  CHECK(at_work("merge"));
  ::setenv("CLAIRFS_BENCH_WITHOUT", "order,merge", 1);
  CHECK(!at_work("merge"));
  CHECK(!at_work("order"));
  CHECK(at_work("merg"));
  ::setenv("CLAIRFS_BENCH_WITHOUT", "merged", 1);
  CHECK(at_work("merge"));
  ::unsetenv("CLAIRFS_BENCH_WITHOUT");
}
