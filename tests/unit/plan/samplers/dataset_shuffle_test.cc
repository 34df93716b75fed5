#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("a dataset's own .shuffle(seed) is one permutation under whatever the sampler does") {
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_default_rng")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "permutation" || params.contains("seed_list")) continue;
    INFO(test.at("id"));
    SamplerSpec spec{.sampler = "torch.sequential", .n = params.at("n")};
    spec.dataset_shuffle = params.at("seed").get<std::string>();
    const auto sampler = sampler_of(spec);
    CHECK(golden::same_sequence(test.at("result").at("calls")[0], indices_of(*sampler, 0)));
    CHECK(golden::same_sequence(test.at("result").at("calls")[0], indices_of(*sampler, 7)));  // once for all
    ++checked;
  }
  CHECK(checked > 50);
}

TEST_CASE("a shuffled dataset under a DistributedSampler") {
  const PlanPairs keys = {{"n", "1000"}, {"seed", "3"}, {"world", "4"}};
  PlanPairs shuffled = keys;
  shuffled.emplace_back("dataset_shuffle", "42");
  const auto permutation =
      indices_of(*sampler_of(spec_of({{"sampler", "numpy.default_rng"}, {"n", "1000"}, {"seed", "42"}})), 0);
  const auto plain = sampler_of(spec_of(keys));
  const auto both = sampler_of(spec_of(shuffled));
  CHECK(both->world() == 4);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    std::vector<uint32_t> expected;
    for (const uint32_t index : indices_of(*plain, 2, rank)) expected.push_back(permutation[index]);
    CHECK(indices_of(*both, 2, rank) == expected);
  }
}

TEST_CASE("a dataset's seed that NumPy does not take is refused") {
  CHECK(refusal_of({.n = 10, .seed = "1", .dataset_shuffle = "-1"}).starts_with("dataset_shuffle:"));
  CHECK(refusal_of({.n = 10, .seed = "1", .dataset_shuffle = "x"}).starts_with("dataset_shuffle:"));
}
