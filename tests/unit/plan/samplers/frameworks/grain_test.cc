#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("Grain's index_shuffle") {
  size_t checked = 0;
  for (const auto& test : golden::cases("grain")) {
    INFO(test.at("id"));
    const golden::Json& params = test.at("params");
    REQUIRE(params.at("rounds") == 4);
    const auto sampler = sampler_of({.sampler = "grain", .n = params.at("n"), .seed = params.at("seed")});
    CHECK(golden::same_sequence(test.at("result").at("perm"), indices_of(*sampler, 0)));
    ++checked;
  }
  CHECK(checked == 37);
}

TEST_CASE("Grain shuffles within contiguous shards, from seed + epoch modulo 2^32") {
  SamplerSpec spec{.sampler = "grain", .n = 10, .world = 3, .seed = "4294967295"};
  const auto alone = [](uint64_t n, const std::string& seed) {
    return indices_of(*sampler_of({.sampler = "grain", .n = n, .seed = seed}), 0);
  };
  const auto shifted = [](std::vector<uint32_t> indices, uint32_t by) {
    for (uint32_t& index : indices) index += by;
    return indices;
  };
  const auto sampler = sampler_of(spec);  // 4, 3 and 3
  CHECK(indices_of(*sampler, 2, 0) == alone(4, "1"));
  CHECK(indices_of(*sampler, 2, 1) == shifted(alone(3, "1"), 4));
  CHECK(indices_of(*sampler, 2, 2) == shifted(alone(3, "1"), 7));
  spec.drop_last = true;  // 3 each
  CHECK(indices_of(*sampler_of(spec), 2, 2) == shifted(alone(3, "1"), 6));
  spec.shuffle = false;
  CHECK(indices_of(*sampler_of(spec), 2, 1) == std::vector<uint32_t>{3, 4, 5});
}

TEST_CASE("Grain refuses seeds of more than 32 bits") {
  CHECK(refusal_of({.sampler = "grain", .n = 9, .seed = "4294967296"}).starts_with("seed:"));
  CHECK(refusal_of({.sampler = "grain", .n = 9, .seed = "-1"}).starts_with("seed:"));
}
