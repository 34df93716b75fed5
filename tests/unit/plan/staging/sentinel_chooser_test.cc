#include "plan/staging/sentinel_chooser.h"

#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint64_t kSample = 4096;

// A window that is full of equal samples.
SentinelChooser::Window full(uint64_t samples, uint64_t high_water = 0) {
  return {high_water, high_water, high_water + samples, samples * kSample, samples * kSample};
}

std::vector<uint64_t> sentinels(SentinelChooser& chooser, uint64_t from, uint64_t to) {
  std::vector<uint64_t> chosen;
  for (uint64_t p = from; p < to; ++p) {
    if (chooser.choose(p, false, true)) chosen.push_back(p);
  }
  return chosen;
}

}  // namespace

TEST_CASE("the gap follows the window") {
  SentinelChooser one(1);
  one.choose_gap(full(4));
  CHECK(one.widest_gap(0, 0) == 1);
  one.choose_gap(full(80));
  CHECK(one.widest_gap(0, 0) == 10);
  one.choose_gap(full(100000));
  CHECK(one.widest_gap(0, 0) == 128);
  SentinelChooser of_two(2);
  of_two.choose_gap(full(80));
  CHECK(of_two.widest_gap(0, 0) == 20);
  SentinelChooser of_many(16);
  of_many.choose_gap(full(90));
  CHECK(of_many.widest_gap(0, 0) == 30);
}

TEST_CASE("a window that is filling counts as full by the size of what it holds") {
  SentinelChooser chooser(1);
  chooser.choose_gap({0, 0, 10, 10 * kSample, 80 * kSample});
  CHECK(chooser.widest_gap(0, 0) == 10);
}

TEST_CASE("a wider gap holds until the reader has passed it") {
  SentinelChooser chooser(1);
  chooser.choose_gap({0, 500, 800, 800 * kSample, 800 * kSample});
  CHECK(chooser.widest_gap(0, 0) == 100);
  chooser.choose_gap({400, 500, 480, 80 * kSample, 80 * kSample});
  CHECK(chooser.widest_gap(0, 0) == 100);
  chooser.choose_gap({500, 500, 580, 80 * kSample, 80 * kSample});
  CHECK(chooser.widest_gap(0, 0) == 10);
}

TEST_CASE("sentinels are no further apart than the gap, and not evenly") {
  SentinelChooser chooser(1);
  chooser.choose_gap(full(800));
  const std::vector<uint64_t> chosen = sentinels(chooser, 0, 10000);
  CHECK(chosen.front() == 0);
  uint64_t shortest = 100;
  for (size_t i = 1; i < chosen.size(); ++i) {
    CHECK(chosen[i] - chosen[i - 1] <= 100);
    shortest = std::min(shortest, chosen[i] - chosen[i - 1]);
  }
  CHECK(shortest >= 88);
  CHECK(shortest < 95);
}

TEST_CASE("the last sample of an epoch is one, and another takes the place of one that cannot be") {
  SentinelChooser chooser(1);
  chooser.choose_gap(full(800));
  CHECK(chooser.choose(0, false, true));
  CHECK_FALSE(chooser.choose(50, false, true));
  CHECK_FALSE(chooser.choose(51, true, false));
  CHECK(chooser.choose(52, false, true));
  CHECK(chooser.choose(60, true, true));
  chooser.restart(70);
  CHECK(chooser.choose(70, false, true));
}

TEST_CASE(
    "where a sentinel comes later than the gap says, the distance counts until the reader has passed it") {
  SentinelChooser chooser(1);
  chooser.choose_gap(full(80));
  REQUIRE(chooser.choose(0, false, true));
  CHECK(chooser.widest_gap(5, 5) == 10);
  CHECK(chooser.widest_gap(5, 40) == 10);   // one is due in between
  CHECK(chooser.widest_gap(40, 40) == 40);  // so far are samples pushed without one
  for (uint64_t p = 1; p < 47; ++p) REQUIRE(!chooser.choose(p, false, false));
  CHECK(!chooser.late(15));
  CHECK(chooser.late(20));
  REQUIRE(chooser.choose(47, false, true));
  CHECK(chooser.widest_gap(48, 48) == 47);
  chooser.choose_gap(full(80, 40));
  CHECK(chooser.widest_gap(48, 48) == 47);
  chooser.choose_gap(full(80, 48));
  CHECK(chooser.widest_gap(48, 48) == 10);
}
