#include "plan/inference/seeds/seed_fit.h"

#include <algorithm>
#include <vector>

#include "plan/random/torch_random.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::vector<uint32_t> whole_shuffle(uint32_t seed, uint64_t n) {
  Mt19937 generator(seed);
  std::vector<uint32_t> order(n);
  torch_randperm(generator, order, {2, 5});
  return order;
}

}  // namespace

TEST_CASE("the beginning of a shuffle takes no memory for the rest, whatever its size") {
  for (const uint64_t n :
       {uint64_t{1}, uint64_t{2}, uint64_t{7}, uint64_t{100}, uint64_t{5000}, uint64_t{1'281'167}}) {
    for (const uint64_t length : {uint64_t{1}, n / 20 + 1, n / 2 + 1, n}) {
      PartialShuffle shuffle(n, length);
      for (const uint32_t seed : {3U, 4U}) {  // the second one finds the table as the first left it
        Mt19937 generator(seed);
        const auto start = shuffle.draw(generator);
        auto order = whole_shuffle(seed, n);
        order.resize(length);
        INFO(n << ", " << length);
        CHECK(std::equal(start.begin(), start.end(), order.begin(), order.end()));
      }
    }
  }
  // Two of 4 billion are drawn the same way; nobody has the memory to compare more.
  PartialShuffle largest(UINT32_MAX, 2);
  Mt19937 generator(9);
  Mt19937 outputs(9);
  const auto start = largest.draw(generator);
  CHECK(start[0] == outputs.next32() % UINT32_MAX);
  CHECK(start[1] == 1 + outputs.next32() % (UINT32_MAX - 1));
}

TEST_CASE("arrivals are those of the samples that were seen, and of no others that resemble them") {
  const std::vector<uint32_t> seen = {70'000, 3, 4464, 0xffffffff};  // 70,000 and 4464 have the same low half
  const Arrivals arrivals(seen);
  CHECK(arrivals.count() == 4);
  for (uint32_t i = 0; i < 4; ++i) CHECK(arrivals.of(seen[i]) == i);
  for (const uint32_t other : {0U, 2U, 135'536U, 0xffffU}) CHECK(arrivals.of(other) == Arrivals::kNever);
}

TEST_CASE("the places of a node's ranks are theirs in each round, up to the dataset's end") {
  const auto places = [](SeedEvidence evidence) {
    const OwnPlaces own(evidence);
    std::vector<uint64_t> all;
    for (uint64_t i = 0; i < own.count(); ++i) all.push_back(own.of(i));
    return all;
  };
  using Places = std::vector<uint64_t>;
  CHECK(places({.n = 100, .reach = 4}) == Places{0, 1, 2, 3});
  CHECK(places({.n = 3, .reach = 4}) == Places{0, 1, 2});
  CHECK(places({.n = 100, .reach = 3, .world = 8, .first_rank = 2, .ranks = 2}) ==
        Places{2, 3, 10, 11, 18, 19});
  CHECK(places({.n = 12, .reach = 3, .world = 8, .first_rank = 2, .ranks = 2}) == Places{2, 3, 10, 11});
  CHECK(places({.n = 11, .reach = 3, .world = 8, .first_rank = 2, .ranks = 2}) == Places{2, 3, 10});
  CHECK(places({.n = 2, .reach = 3, .world = 8, .first_rank = 2, .ranks = 2}).empty());
}
