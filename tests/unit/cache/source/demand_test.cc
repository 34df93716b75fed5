#include "cache/source/demand.h"

#include <thread>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

using Kind = Urgency::Kind;

TEST_CASE("a demand keeps its urgency, of any kind", "[demand]") {
  for (const Kind kind : {Kind::reader, Kind::prefetch, Kind::fill}) {
    for (const uint64_t deadline : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, (uint64_t{1} << 62) - 1}) {
      const Urgency urgency{kind, deadline};
      CHECK(Demand(urgency).now() == urgency);
    }
  }
}

TEST_CASE("deadlines beyond those it can tell apart do not change its kind", "[demand]") {
  const Urgency last = Demand({Kind::prefetch, UINT64_MAX}).now();
  CHECK(last.kind == Kind::prefetch);
  CHECK(last < Urgency{Kind::fill, 0});
}

TEST_CASE("a demand only rises", "[demand]") {
  Demand demand({Kind::prefetch, 10});
  CHECK_FALSE(demand.raise({Kind::prefetch, 10}));
  CHECK_FALSE(demand.raise({Kind::fill, 0}));
  CHECK(demand.raise({Kind::prefetch, 9}));
  CHECK(demand.raise({Kind::reader, 5}));
  CHECK_FALSE(demand.raise({Kind::prefetch, 0}));
  CHECK(demand.now() == Urgency{Kind::reader, 5});
}

TEST_CASE("of many who raise it at once the most urgent counts", "[demand]") {
  Demand demand({Kind::fill, 0});
  std::vector<std::jthread> threads;
  for (uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&demand, t] {
      for (uint64_t i = 0; i < 1000; ++i) demand.raise({Kind::prefetch, 4 * (1000 - i) + t});
    });
  }
  threads.clear();
  CHECK(demand.now() == Urgency{Kind::prefetch, 4});
}
