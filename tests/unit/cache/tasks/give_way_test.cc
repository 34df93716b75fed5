#include "cache/tasks/give_way.h"

#include <atomic>
#include <thread>

#include <sched.h>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

void work(Duration time) {
  const Duration end = times_of_this_thread()->ran + time;
  while (times_of_this_thread()->ran < end) {
  }
}

}  // namespace

TEST_CASE("who ran while others waited rests a hundred times as long") {
  CHECK(rest_after({1ms, 1ms}) == 100ms);
  CHECK(rest_after({1ms, 5s}) == 100ms);  // it had little of the core
  CHECK(rest_after({5ms, 10us}) == 1ms);  // and here others had
  CHECK(rest_after({5ms, 0ms}) == 0ms);   // nobody else wants it
  CHECK(rest_after({1h, 1h}) == 1s);
}

TEST_CASE("the kernel counts what a thread ran and waited") {
  const auto before = times_of_this_thread();
  REQUIRE(before);
  work(2ms);
  const auto after = times_of_this_thread();
  CHECK(after->ran - before->ran >= 2ms);
  CHECK(after->waited >= before->waited);
}

TEST_CASE("a thread beside another on its core rests, and is told to stop meanwhile") {
  std::atomic<bool> over{false};
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &one);
  }
  std::thread other([&] {
    ::sched_setaffinity(0, sizeof one, &one);
    while (!over) work(1ms);
  });
  int asked = 0;  // between two answers: once, and more often while the thread rests
  bool stops = false;
  bool stopped = false;
  std::thread resting([&] {
    ::sched_setaffinity(0, sizeof one, &one);
    const auto stop = giving_way([&] { return ++asked > 0 && stops; });
    const auto deadline = std::chrono::steady_clock::now() + 1min;
    for (; asked <= 1 && std::chrono::steady_clock::now() < deadline; work(1ms)) {
      asked = 0;
      stop();
    }
    stops = true;
    stopped = stop();
  });
  resting.join();
  over = true;
  other.join();
  CHECK(asked > 1);
  CHECK(stopped);
}

TEST_CASE("a thread that asks often is answered as if it asked itself") {
  bool stops = false;
  const auto stop = giving_way([&] { return stops; });
  CHECK(!stop());
  stops = true;
  CHECK(stop());
}
