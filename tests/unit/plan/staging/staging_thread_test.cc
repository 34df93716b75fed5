#include "plan/staging/staging_thread.h"

#include <thread>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

TEST_CASE("a thread stages when a plan is added and when its reader moves, and ends with it") {
  constexpr uint64_t kWindow = 10;
  StagingFixture f(100, 20000, "seed=1 format=files epochs=1", kWindow * round_to_pages(20000), 0);
  const SteadyClock clock;
  StagingThread thread(*f.staging, clock);
  const auto wait_until_staged = [&](uint64_t position) {
    while (f.staged() < position) std::this_thread::yield();
  };
  wait_until_staged(kWindow);
  for (uint64_t p = 0; p < kWindow; ++p) f.read_next(p);
  wait_until_staged(kWindow + 1);
  thread.stop();
  const uint64_t before = f.staged();
  f.staging->wake();
  CHECK(f.staged() == before);
}
