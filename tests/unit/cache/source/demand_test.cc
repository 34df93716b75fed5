#include "cache/source/demand.h"

#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

using Kind = Priority::Kind;

TEST_CASE("a demand keeps its priority, of any kind", "[demand]") {
  for (const Kind kind : {Kind::demand, Kind::prefetch, Kind::background}) {
    for (const uint64_t deadline : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, (uint64_t{1} << 62) - 1}) {
      const Priority priority{kind, deadline};
      CHECK(Demand(priority).now() == priority);
    }
  }
}

TEST_CASE("deadlines beyond those it can tell apart do not change its kind", "[demand]") {
  const Priority last = Demand({Kind::prefetch, UINT64_MAX}).now();
  CHECK(last.kind == Kind::prefetch);
  CHECK(last < Priority{Kind::background, 0});
}

TEST_CASE("a demand only rises", "[demand]") {
  Demand demand({Kind::prefetch, 10});
  CHECK_FALSE(demand.raise({Kind::prefetch, 10}));
  CHECK_FALSE(demand.raise({Kind::background, 0}));
  CHECK(demand.raise({Kind::prefetch, 9}));
  CHECK(demand.raise({Kind::demand, 5}));
  CHECK_FALSE(demand.raise({Kind::prefetch, 0}));
  CHECK(demand.now() == Priority{Kind::demand, 5});
}

TEST_CASE("of many who raise it at once the most urgent counts", "[demand]") {
  Demand demand({Kind::background, 0});
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&demand, t] {
      for (uint64_t i = 0; i < 1000; ++i) demand.raise({Kind::prefetch, 4 * (1000 - i) + t});
    });
  }
  threads.clear();
  CHECK(demand.now() == Priority{Kind::prefetch, 4});
}
