// Lightning's, timm's, torchvision's and Megatron's samplers.
#include <functional>
#include <set>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

/// `ranks`: a sequence for each rank, or one for each of `epochs`.
void check_ranks(const SamplerSpec& spec, const golden::Json& params, const golden::Json& ranks) {
  const auto sampler = sampler_of(spec);
  for (const auto& [rank, expected] : ranks.items()) {
    const auto number = static_cast<uint32_t>(std::stoul(rank));
    if (expected.is_object()) {
      CHECK(golden::same_sequence(expected, indices_of(*sampler, 0, number)));
      continue;
    }
    for (size_t i = 0; i < expected.size(); ++i) {
      INFO("rank " << rank << " epoch " << params.at("epochs")[i]);
      CHECK(golden::same_sequence(expected[i], indices_of(*sampler, params.at("epochs")[i], number)));
    }
  }
}

size_t check_kind(const std::string& kind, const std::function<SamplerSpec(const golden::Json&)>& spec_for) {
  size_t checked = 0;
  for (const auto& test : golden::cases("frameworks")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != kind) continue;
    INFO(test.at("id"));
    check_ranks(spec_for(params), params, test.at("result").at("ranks"));
    ++checked;
  }
  return checked;
}

}  // namespace

TEST_CASE("timm's OrderedDistributedSampler") {
  CHECK(check_kind("timm_ordered", [](const golden::Json& params) {
          return SamplerSpec{.sampler = "timm.ordered", .n = params.at("n"), .world = params.at("W")};
        }) == 3);
}

TEST_CASE("timm's RepeatAugSampler, whole and fractional repeats") {
  CHECK(check_kind("timm_repeataug", [](const golden::Json& params) {
          SamplerSpec spec{.sampler = "timm.repeataug", .n = params.at("n"), .world = params.at("W")};
          spec.num_repeats = params.at("num_repeats");
          spec.args.selected_round = params.at("selected_round");
          spec.args.selected_ratio = params.at("selected_ratio");
          return spec;
        }) == 12);
}

TEST_CASE("torchvision's RASampler") {
  CHECK(check_kind("torchvision_ra", [](const golden::Json& params) {
          SamplerSpec spec{.sampler = "torchvision.ra", .n = params.at("n"), .world = params.at("W")};
          spec.seed = params.at("seed");
          spec.num_repeats = params.at("repetitions");
          return spec;
        }) == 3);
}

TEST_CASE("repeated augmentation: refusals, and never calling set_epoch") {
  SamplerSpec spec{.sampler = "torchvision.ra", .n = 600, .world = 2, .seed = "4"};
  spec.num_repeats = 1.5;
  CHECK(refusal_of(spec).starts_with("num_repeats:"));
  spec.sampler = "timm.repeataug";
  spec.num_repeats = 1e9;
  CHECK(refusal_of(spec).starts_with("num_repeats:"));
  spec.num_repeats = 2;
  spec.n = 3'000'000'000;
  CHECK(refusal_of(spec).starts_with("num_repeats:"));
  SamplerSpec unshuffled{.sampler = "torchvision.ra", .n = 600, .world = 2};
  unshuffled.shuffle = false;
  const auto indices = indices_of(*sampler_of(unshuffled), 5, 1);
  CHECK(indices.size() == 256);
  CHECK(std::vector(indices.begin(), indices.begin() + 6) == std::vector<uint32_t>{0, 1, 1, 2, 3, 3});
  SamplerSpec never{.sampler = "torchvision.ra", .n = 600, .world = 2};
  const auto first = indices_of(*sampler_of(never), 0, 1);
  CHECK(indices_of(*sampler_of(never), 3, 1) != first);
  never.set_epoch = false;
  CHECK(indices_of(*sampler_of(never), 3, 1) == first);
}

TEST_CASE("Lightning's UnrepeatedDistributedSampler") {
  size_t checked = 0;
  for (const auto& test : golden::cases("frameworks")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "lightning_unrepeated") continue;
    for (const auto& [rank_of_world, expected] : test.at("result").at("ranks").items()) {
      INFO(rank_of_world);
      const size_t slash = rank_of_world.find('/');
      const auto world = static_cast<uint32_t>(std::stoul(rank_of_world.substr(slash + 1)));
      const auto sampler = sampler_of({.sampler = "lightning.predict", .n = params.at("n"), .world = world});
      CHECK(golden::same_sequence(expected, indices_of(*sampler, params.at("epoch"),
                                                       static_cast<uint32_t>(std::stoul(rank_of_world)))));
      ++checked;
    }
  }
  CHECK(checked >= 5);
}

TEST_CASE("Lightning trains with a DistributedSampler of its global seed, shuffling in any case") {
  const auto plain = sampler_of({.n = 101, .world = 4, .seed = "0"});
  const auto seeded = sampler_of({.n = 101, .world = 4, .seed = "9"});
  for (uint32_t rank = 0; rank < 4; ++rank) {
    CHECK(indices_of(*sampler_of({.sampler = "lightning", .n = 101, .world = 4}), 3, rank) ==
          indices_of(*plain, 3, rank));
    CHECK(indices_of(*sampler_of({.sampler = "lightning", .n = 101, .world = 4, .seed = "9"}), 3, rank) ==
          indices_of(*seeded, 3, rank));
  }
}

TEST_CASE("Megatron's random sampler, resumed after any number of samples") {
  size_t checked = 0;
  for (const auto& test : golden::cases("frameworks")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "megatron_random_sampler") continue;
    const uint64_t total = params.at("total");
    const uint32_t world = params.at("D");
    const uint32_t micro_batch = params.at("micro_batch");
    SamplerSpec spec{.sampler = "megatron.random", .n = total, .world = world, .batch = micro_batch};
    spec.args.data_sharding = params.at("data_sharding");
    const auto sampler = sampler_of(spec);
    const uint64_t active = total - total % (uint64_t{micro_batch} * world);
    const uint64_t consumed = params.at("consumed");
    for (const auto& [rank, expected] : test.at("result").at("ranks").items()) {
      INFO(test.at("id") << " rank " << rank);
      auto indices = indices_of(*sampler, static_cast<uint32_t>(consumed / active),
                                static_cast<uint32_t>(std::stoul(rank)));
      indices.erase(indices.begin(), indices.begin() + static_cast<ptrdiff_t>(consumed % active / world));
      CHECK(golden::same_sequence(expected, indices));
    }
    ++checked;
  }
  CHECK(checked == 6);
}

TEST_CASE("Megatron's sequential sampler deals micro-batches") {
  const auto sampler = sampler_of({.sampler = "megatron.sequential", .n = 19, .world = 2, .batch = 4});
  CHECK(indices_of(*sampler, 0, 0) == std::vector<uint32_t>{0, 1, 2, 3, 8, 9, 10, 11});
  CHECK(indices_of(*sampler, 0, 1) == std::vector<uint32_t>{4, 5, 6, 7, 12, 13, 14, 15});
  CHECK(refusal_of({.sampler = "megatron.random", .n = 7, .world = 2, .batch = 4}).starts_with("n:"));
}

TEST_CASE("every kind of case in the frameworks' vectors is looked at") {
  std::set<std::string> kinds;
  for (const auto& test : golden::cases("frameworks")) kinds.insert(test.at("params").at("kind"));
  // megatron_index: unit/plan/formats/records/megatron_gpt_test.cc.
  CHECK(kinds == std::set<std::string>{"accelerate_seedable+shard", "timm_ordered", "timm_repeataug",
                                       "torchvision_ra", "megatron_random_sampler", "megatron_index",
                                       "lightning_unrepeated"});
}
