#include "mount-helper/serve/watchdog.h"

#include <thread>

#include "tests/support/catch.h"
#include "tests/support/eventually.h"

using namespace clairfs;
using namespace std::chrono_literals;

TEST_CASE("a watchdog barks once for each time that it watches, if nobody lets it rest") {
  AwaitedCount barks;
  AwaitedCount others;
  {
    Watchdog dog;
    dog.rest();  // as it does already
    dog.watch(1ms, [&] { barks.raise(); });
    CHECK(barks.reaches(1));
    dog.watch(1h, [&] { barks.raise(); });
    dog.rest();
    dog.watch(1ms, [&] { others.raise(); });
    CHECK(others.reaches(1));
    dog.watch(1h, [&] { barks.raise(); });
  }
  CHECK(barks.value() == 1);
  CHECK(others.value() == 1);
}

TEST_CASE("a watchdog that rests barks no more") {
  AwaitedCount barks;
  Watchdog dog;
  dog.watch(5ms, [&] { barks.raise(); });
  dog.rest();
  const auto before = barks.value();  // one on a machine that took so long
  std::this_thread::sleep_for(100ms);
  CHECK(barks.value() == before);
}

// Each time its thread is somewhere else: a thread sanitizer sees what the two share.
TEST_CASE("a watchdog watches again as soon as it rests") {
  AwaitedCount barks;
  Watchdog dog;
  for (int i = 0; i < 2000; ++i) {
    dog.watch(1h, [&] { barks.raise(); });
    dog.rest();
  }
  dog.watch(1ms, [&] { barks.raise(); });
  CHECK(barks.reaches(1));
}
