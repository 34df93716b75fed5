#include "plan/retention/spread_order.h"

#include <cmath>
#include <set>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a spread order has every chunk once, and gives back each one's rank") {
  for (const uint32_t count : {1U, 2U, 3U, 4U, 6U, 10U, 64U, 997U, 1000U, 30030U}) {
    const SpreadOrder order(count);
    REQUIRE(order.count() == count);
    std::set<uint32_t> ranks;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t rank = order.rank(ChunkId(i));
      CHECK(rank < count);
      CHECK(order.at(rank) == ChunkId(i));
      ranks.insert(rank);
    }
    CHECK(ranks.size() == count);
  }
}

TEST_CASE("the largest dataset's ranks are not cut off") {
  constexpr uint32_t kCount = UINT32_MAX;
  const SpreadOrder order(kCount);
  for (const uint32_t chunk : {0U, 1U, kCount / 2, kCount - 2, kCount - 1}) {
    CHECK(order.rank(ChunkId(chunk)) < kCount);
    CHECK(order.at(order.rank(ChunkId(chunk))) == ChunkId(chunk));
  }
}

TEST_CASE("every beginning of a spread order is spread evenly") {
  for (const uint32_t count : {1000U, 1024U, 4096U, 30030U}) {
    const SpreadOrder order(count);
    for (const double share : {0.1, 0.25, 0.5, 0.9}) {
      for (const uint32_t window : {10U, 50U, 300U}) {
        for (uint32_t begin = 0; begin + window <= count; begin += window) {
          uint32_t chosen = 0;
          for (uint32_t i = begin; i < begin + window; ++i) chosen += order.rank(ChunkId(i)) < share * count;
          INFO(count << " chunks, " << share << " of them, " << window << " from " << begin << " on");
          CHECK(std::abs(chosen - share * window) <= 4 + 0.02 * window);
        }
      }
    }
  }
}
