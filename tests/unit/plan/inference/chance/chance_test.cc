#include "plan/inference/chance/chance.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("the chance of a wrong order is that of drawing without replacement") {
  // Of 10 samples 4 are in reach: 3 of 3 that were seen with (4 3 2) / (10 9 8), 2 of 3 with 3 (4 3 6) / (10
  // 9 8) more.
  const Draw draw{10, 4, 3};
  CHECK(std::exp(log_chance(draw, 3)) == Approx(24.0 / 720));
  CHECK(std::exp(log_chance(draw, 2)) == Approx((24.0 + 216) / 720));
  CHECK(log_chance(draw, 0) == 0);
  CHECK(log_chance(draw, 4) < -1e300);  // more than were seen
  // What does not fit elsewhere is explained by any order.
  CHECK(log_chance({10, 8, 5}, 3) == 0);
  CHECK(log_chance({10, 8, 5}, 4) < 0);
}

TEST_CASE("the chance of large datasets is exact enough") {
  // Nearly with replacement: 20 of 20 in one place of a thousand each.
  const double log = log_chance({4'000'000'000, 4'000'000, 20}, 20);
  CHECK(log == Approx(20 * std::log(1e-3)).epsilon(1e-4));
}

TEST_CASE("as many must be explained as make a wrong lock unlikely over all orders") {
  const double orders = 4294967296.0;
  const Draw draw{1'281'167, 640, 64};
  const auto needed = explained_needed(draw, orders);
  REQUIRE(needed);
  CHECK(*needed < 20);
  CHECK(log_chance(draw, *needed) + std::log(orders) < std::log(kMostWrongLocks));
  CHECK(log_chance(draw, *needed - 1) + std::log(orders) >= std::log(kMostWrongLocks));
  CHECK(*explained_needed(draw, orders * 1e6) > *needed);
}

TEST_CASE("where all that was seen is not enough nothing is") {
  for (const Draw& draw : {Draw{1, 1, 1}, Draw{2, 2, 2}, Draw{100, 100, 64}, Draw{1000, 250, 20},
                           Draw{1'281'167, 640, 5}, Draw{1'281'167, 640, 0}})
    CHECK(explained_needed(draw, 4294967296.0) == std::nullopt);
}
