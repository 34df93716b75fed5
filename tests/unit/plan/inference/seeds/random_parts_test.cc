#include "plan/inference/seeds/random_parts.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

TEST_CASE("parts have the sizes that random_split() gives them") {
  const auto has = [](uint64_t n, uint64_t first, uint64_t end) {
    const std::vector<RandomPart> parts = usual_parts(n);
    return std::any_of(parts.begin(), parts.end(),
                       [&](const RandomPart& part) { return part.first == first && part.end == end; });
  };
  CHECK(has(1000, 0, 800));
  CHECK(has(1000, 800, 1000));
  CHECK(!has(1000, 0, 801));
  // int(0.8 * n) of a script; one more of random_split([0.8, 0.2]), whose first part gets what is left.
  CHECK(has(1001, 0, 800));
  CHECK(has(1001, 0, 801));
  CHECK(has(1001, 801, 1001));
}

TEST_CASE("no part is empty or larger than the dataset, however small that is") {
  for (uint64_t n = 1; n < 30; ++n) {
    for (const RandomPart& part : usual_parts(n)) {
      INFO(n << ": " << part.first << " to " << part.end);
      CHECK(part.first < part.end);
      CHECK(part.end <= n);
      CHECK(part.end - part.first < n);
    }
  }
}

TEST_CASE("samples lie in a split where torch's permutation has them") {
  AccessSequence dealt = plan_over(1000, "sampler=torch.random generator=sampler seed=42");
  const Samples order = order_of(dealt, 0);
  const std::vector<uint32_t> samples{order[17], order[999], order[0]};
  CHECK(places_in_split(samples, 1000, 42) == std::vector<uint32_t>{17, 999, 0});
  CHECK(places_in_split(samples, 1000, 43) != std::vector<uint32_t>{17, 999, 0});
}
