#include "plan/tracking/order_score.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr int64_t kSlack = 16;
constexpr double kChance = 0.01;  // of a long epoch

// Observations in order, each one sample in `every`.
void read_on(OrderScore& score, Access kind, int times, int64_t every = 1) {
  for (int i = 0; i < times; ++i) {
    score.in_order(kind, kChance);
    score.passed(every);
  }
}

// Strays in a row until the plan fails.
int strays_until_failure(OrderScore& score, Access kind, bool pushed) {
  int strays = 0;
  while (!score.fails(pushed, kSlack)) {
    score.out_of_order(kind);
    ++strays;
  }
  return strays;
}

}  // namespace

TEST_CASE("how many strays in a row are too many depends on how much is seen") {
  SECTION("every open") {
    OrderScore score;
    read_on(score, Access::open, 100);
    CHECK(score.every_open());
    CHECK(score.observed_fraction() == 1);
    CHECK(strays_until_failure(score, Access::open, true) == 12);
  }
  SECTION("every read, while nothing is pushed") {
    OrderScore score;
    read_on(score, Access::read, 100);
    CHECK_FALSE(score.every_open());
    CHECK(strays_until_failure(score, Access::read, false) == 12);
  }
  SECTION("sentinels alone") {
    OrderScore score;
    read_on(score, Access::read, 100, 64);
    CHECK_FALSE(score.every_open());
    CHECK(score.observed_fraction() == Approx(1.0 / 64).epsilon(0.5));
    CHECK(strays_until_failure(score, Access::read, true) == 40);
  }
  SECTION("nothing in order yet, each access with its open") {
    OrderScore score;
    CHECK(strays_until_failure(score, Access::open, false) == 16);  // from which on the kind is believed
    CHECK(score.every_open());
  }
}

TEST_CASE("an observation in order takes away what it stands for") {
  OrderScore opens;
  read_on(opens, Access::open, 100);
  for (int i = 0; i < 4; ++i) opens.out_of_order(Access::open);
  read_on(opens, Access::open, 7);
  CHECK(opens.in_doubt());
  read_on(opens, Access::open, 1);
  CHECK_FALSE(opens.in_doubt());

  OrderScore sentinels;
  read_on(sentinels, Access::read, 100, 64);
  for (int i = 0; i < 20; ++i) sentinels.out_of_order(Access::read);
  read_on(sentinels, Access::read, 1, 64);
  CHECK_FALSE(sentinels.in_doubt());
}

TEST_CASE("one stray in twenty opens never adds up, one in two soon does") {
  for (const int64_t every : {1, 16, 64}) {
    const Access kind = every == 1 ? Access::open : Access::read;
    OrderScore score;
    for (int i = 0; i < 10000; ++i) {
      read_on(score, kind, 1, every);
      for (int64_t stray = 0; stray < every / 20 + (i % 20 == 0 ? 1 : 0); ++stray) score.out_of_order(kind);
      REQUIRE_FALSE(score.fails(every > 1, kSlack));
    }
  }
  OrderScore half;
  read_on(half, Access::open, 100);
  int opens = 0;
  for (; !half.fails(true, kSlack); ++opens) {
    half.out_of_order(Access::open);
    read_on(half, Access::open, 1);
  }
  CHECK(opens <= 24);
}

TEST_CASE("samples that are left out are missed after reorder_window and some more") {
  OrderScore score;
  read_on(score, Access::open, 100);
  CHECK_FALSE(score.left_out(kSlack));
  int opens = 0;
  for (; !score.left_out(kSlack); ++opens) read_on(score, Access::open, 1, 2);  // every other sample
  CHECK(opens == 54);                                                           // 0.9 each, to 16 + 32
  CHECK(score.left_out(kSlack) == 48);
  score.forget_holes();
  CHECK_FALSE(score.left_out(kSlack));
}

TEST_CASE("samples that come late are not left out") {
  OrderScore score;
  for (int i = 0; i < 1000; ++i) {
    score.in_order(Access::open, kChance);
    score.passed(8);
    for (int late = 0; late < 7; ++late) {
      score.in_order(Access::open, kChance);
      score.passed(0);
    }
    REQUIRE_FALSE(score.left_out(kSlack));
  }
}
