#include "cache/tasks/idle_pace.h"

#include <atomic>
#include <thread>

#include <sched.h>

#include "cache/base/thread.h"
#include "cache/tasks/idle_thread.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

// Uses some milliseconds of a core, and far less than half of the time that it takes: as where others want
// it.
void work_beside_others() {
  const Duration before = thread_cpu_time();
  while (thread_cpu_time() < before + 5ms) {
  }
  std::this_thread::sleep_for(200ms);
}

// There is nothing left for days.
void overdraw(IdlePace& pace) {
  (void)pace.take(1h, steady_now());
}

}  // namespace

TEST_CASE("of busy cores some may be taken at once, then a four-hundredth of their time") {
  IdlePace pace(4);
  TimePoint now = steady_now();
  CHECK(pace.take(IdlePace::kAtOnce - 600ms, now) == 0s);
  CHECK(in_seconds(pace.take(600ms, now)) == Approx(0).margin(1e-6));
  CHECK(in_seconds(pace.take(20ms, now)) == Approx(2));  // four cores give 10 ms a second
  now += 2s;
  CHECK(in_seconds(pace.take(0s, now)) == Approx(0).margin(1e-6));
  CHECK(in_seconds(pace.take(10ms, now)) == Approx(1));
  now += 24h;
  CHECK(pace.take(IdlePace::kAtOnce, now) == 0s);  // no more is saved than that
  CHECK(in_seconds(pace.take(1s, now)) == Approx(100));
}

TEST_CASE("an idle thread that has taken too much of busy cores waits until it is told to stop") {
  IdlePace pace(1);
  overdraw(pace);
  std::atomic<bool> stopping{false};
  AwaitedCount asked;
  std::atomic<bool> kept{false};
  IdleThread thread("idle", [&] {
    pace.keep([] { return true; });
    work_beside_others();
    pace.keep([&] {
      asked.raise();
      return stopping.load();
    });
    kept = true;
  });
  CHECK(asked.reaches(3));  // it waits
  CHECK(!kept);
  stopping = true;
  CHECK(thread.is_over_within(1min));
  CHECK(kept);
}

TEST_CASE("while somebody waits for the work, nothing is held back") {
  IdlePace pace(1);
  overdraw(pace);
  AwaitedCount asked;
  std::atomic<bool> again{false};
  const auto keep = [&] {
    pace.keep([&] {
      asked.raise();
      return false;
    });
  };
  IdleThread thread("idle", [&] {
    keep();
    work_beside_others();
    keep();
    again = true;
    work_beside_others();
    keep();
  });
  CHECK(asked.reaches(1));  // it waits
  CHECK(!again);
  pace.suspend(steady_now() + 1h);  // it goes on, and does not wait again
  CHECK(thread.is_over_within(1min));
  CHECK(again);
}

TEST_CASE("a thread that is hurried, or never was an idle one, does not wait") {
  IdlePace pace(1);
  overdraw(pace);
  AwaitedCount asked;
  const auto work = [&] {
    pace.keep([] { return true; });
    work_beside_others();
    pace.keep([&] {
      asked.raise();
      return false;
    });
  };
  SECTION("hurried") {
    IdleThread thread("idle", work);
    CHECK(asked.reaches(1));
    thread.hurry();
    CHECK(thread.wait(1min));
  }
  SECTION("never idle") {
    IdleThread thread("idle", work, false);
    CHECK(thread.wait());
    CHECK(asked.value() == 0);
  }
}
