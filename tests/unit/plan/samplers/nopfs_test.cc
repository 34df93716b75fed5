#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("NoPFS: every node's share of every batch") {
  for (const auto& test : golden::cases("nopfs")) {
    const golden::Json& params = test.at("params");
    SamplerSpec spec{.sampler = "nopfs",
                     .n = params.at("count"),
                     .world = params.at("nodes"),
                     .batch = params.at("batch_size"),
                     .seed = params.at("seed")};
    spec.drop_last = params.at("drop_last");
    INFO(test.at("id"));
    const auto sampler = sampler_of(spec);
    for (const auto& [node, epochs] : test.at("result").at("nodes").items()) {
      for (uint32_t epoch = 0; epoch < epochs.size(); ++epoch) {
        const auto number = static_cast<uint32_t>(std::stoul(node));
        CHECK(golden::same_sequence(epochs[epoch], indices_of(*sampler, epoch, number)));
      }
    }
  }
}

TEST_CASE("the nodes share out an epoch whatever the batch size") {
  for (const uint32_t world : {1U, 2U, 3U, 7U}) {
    for (const uint32_t batch : {1U, 2U, 5U, 16U}) {
      const auto sampler =
          sampler_of({.sampler = "nopfs", .n = 103, .world = world, .batch = batch, .seed = "1"});
      std::vector<uint32_t> all;
      for (uint32_t node = 0; node < world; ++node) {
        for (const uint32_t index : indices_of(*sampler, 0, node)) all.push_back(index);
      }
      std::ranges::sort(all);
      INFO("world " << world << " batch " << batch);
      REQUIRE(all.size() == 103);
      for (uint32_t i = 0; i < all.size(); ++i) CHECK(all[i] == i);
    }
  }
}

TEST_CASE("NoPFS: epochs out of order, negative seeds, and what is out of range") {
  const SamplerSpec spec{.sampler = "nopfs", .n = 100, .batch = 10, .seed = "-7"};
  const auto forward = sampler_of(spec);
  std::vector<std::vector<uint32_t>> expected;
  for (uint32_t epoch = 0; epoch < 6; ++epoch) expected.push_back(indices_of(*forward, epoch));
  const auto jumping = sampler_of(spec);
  for (const uint32_t epoch : {5U, 2U, 0U, 4U}) CHECK(indices_of(*jumping, epoch) == expected[epoch]);
  CHECK(refusal_of({.sampler = "nopfs", .n = 100, .seed = "2147483648"}).starts_with("seed:"));
  CHECK(refusal_of({.sampler = "nopfs", .n = 3'000'000'000, .seed = "1"}).starts_with("n:"));
}
