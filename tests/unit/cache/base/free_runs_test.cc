#include "cache/base/free_runs.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("units are taken from the smallest run that holds them, else the largest is taken whole") {
  FreeRuns free;
  free.release({0, 10});
  free.release({20, 5});
  free.release({30, 7});
  CHECK(free.fit(10, 1));
  CHECK_FALSE(free.fit(11, 1));
  CHECK(free.fit(17, 2));
  CHECK(free.fit(22, 3));
  CHECK_FALSE(free.fit(23, 100));
  CHECK(free.take(6) == UnitRun{30, 6});
  CHECK(free.take(5) == UnitRun{20, 5});
  CHECK(free.take(50) == UnitRun{0, 10});
  CHECK(free.units() == 1);
}

TEST_CASE("what comes back joins its neighbours on both sides, where no boundary is between them") {
  FreeRuns free;
  free.release({0, 4});
  free.release({8, 4});
  free.release({4, 4});
  CHECK(free.runs() == 1);
  CHECK(free.take(12) == UnitRun{0, 12});
  FreeRuns bounded(8);
  bounded.release({0, 8});
  bounded.release({16, 8});
  bounded.release({8, 8});
  CHECK(bounded.runs() == 3);
  CHECK_FALSE(bounded.fit(9, 1));
  CHECK(bounded.units() == 24);
}
