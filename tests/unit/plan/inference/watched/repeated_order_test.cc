#include "plan/inference/watched/repeated_order.h"

#include <numeric>

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("the first pass ends where samples are opened again") {
  std::vector<uint32_t> samples(100);
  std::iota(samples.begin(), samples.end(), 0);
  samples.insert(samples.begin() + 50, 7);  // a stray
  CHECK(!find_first_pass(samples));
  for (uint32_t i = 0; i < 20; ++i) samples.push_back(i);
  CHECK(!find_first_pass(samples));
  for (uint32_t i = 20; i < 30; ++i) samples.push_back(i);
  const auto pass = find_first_pass(samples);
  REQUIRE(pass);
  CHECK(pass->repeated_from == 101);
  CHECK(pass->order.size() == 100);
  CHECK(pass->order[99] == 99);
}

TEST_CASE("a reader that never opens anything again has no second pass") {
  std::vector<uint32_t> samples(1000);
  std::iota(samples.begin(), samples.end(), 0);
  CHECK(!find_first_pass(samples));
  CHECK(!find_first_pass({}));
}

TEST_CASE("an order is written as an array") {
  CHECK(list_in_place(std::vector<uint32_t>{3, 1, 20}) == "[3,1,20]");
}
