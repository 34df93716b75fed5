#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("accelerate: SeedableRandomSampler under BatchSamplerShard") {
  size_t checked = 0;
  for (const auto& test : golden::cases("frameworks")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "accelerate_seedable+shard") continue;
    SamplerSpec spec{.sampler = "accelerate",
                     .n = params.at("n"),
                     .world = params.at("num_processes"),
                     .batch = params.at("batch_size"),
                     .seed = params.at("data_seed")};
    spec.drop_last = params.at("drop_last");
    spec.args.split_batches = params.at("split_batches");
    spec.args.even_batches = params.at("even_batches");
    const auto sampler = sampler_of(spec);
    for (const auto& [rank, expected] : test.at("result").at("ranks").items()) {
      const auto number = static_cast<uint32_t>(std::stoul(rank));
      for (uint32_t epoch = 0; epoch < expected.at("epochs").size(); ++epoch) {
        INFO(test.at("id") << " rank " << rank << " epoch " << epoch);
        CHECK(golden::same_sequence(expected.at("epochs")[epoch].at("flat"),
                                    indices_of(*sampler, epoch, number)));
      }
    }
    ++checked;
  }
  CHECK(checked == 28);
}

namespace {

SamplerSpec job(uint64_t n, uint32_t world, uint32_t batch, const std::string& seed) {
  return {.sampler = "accelerate", .n = n, .world = world, .batch = batch, .seed = seed};
}

std::vector<uint32_t> permutation(uint64_t n, const std::string& seed) {
  return indices_of(*sampler_of({.n = n, .seed = seed}), 0);
}

}  // namespace

TEST_CASE("accelerate: one process gets the loader's own batches") {
  SamplerSpec spec = job(10, 1, 4, "42");
  CHECK(indices_of(*sampler_of(spec), 3) == permutation(10, "45"));
  spec.drop_last = true;
  CHECK(indices_of(*sampler_of(spec), 0).size() == 8);
}

TEST_CASE("accelerate: seeds of every version") {
  SamplerSpec spec = job(50, 1, 1, "7");
  using Seeds = std::vector<std::pair<LibraryVersion, std::string>>;
  for (const auto& [version, seed] :
       Seeds{{{0, 24}, "10"}, {{0, 25}, "13"}, {{0, 27}, "13"}, {{0, 28}, "10"}, {{1, 8}, "10"}}) {
    spec.accelerate = version;
    CHECK(indices_of(*sampler_of(spec), 3) == permutation(50, seed));
  }
  spec.accelerate = {0, 23};
  CHECK(refusal_of(spec, ENOTSUP).starts_with("accelerate:"));
}

TEST_CASE("accelerate: with dispatch_batches the first process reads for all") {
  SamplerSpec spec = job(10, 3, 4, "1");
  spec.args.dispatch_batches = true;
  const auto sampler = sampler_of(spec);
  CHECK(indices_of(*sampler, 0, 0) == permutation(10, "1"));
  CHECK(indices_of(*sampler, 0, 1).empty());
  CHECK(indices_of(*sampler, 0, 2).empty());
}

TEST_CASE("accelerate: without the seedable sampler a generator runs on") {
  SamplerSpec spec = job(24, 2, 4, "5");
  spec.args.use_seedable_sampler = false;
  // The same as a RandomSampler with a generator of its own, which prepare() seeds from the default one.
  Mt19937 standard(5);
  SamplerSpec plain{.sampler = "torch.random", .n = 24, .seed = std::to_string(torch_random_int64(standard))};
  plain.generator = TorchGeneratorUse::sampler;
  SamplerSpec shared = spec;
  shared.generator = TorchGeneratorUse::loader;
  SamplerSpec plain_shared{.sampler = "torch.random", .n = 24, .seed = "5"};
  for (const auto& [dealt, whole] : {std::pair{spec, plain}, std::pair{shared, plain_shared}}) {
    const auto sampler = sampler_of(dealt);
    const auto order = sampler_of(whole);
    for (const uint32_t epoch : {0U, 2U}) {
      const auto all = indices_of(*order, epoch);
      for (uint32_t rank = 0; rank < 2; ++rank) {
        std::vector<uint32_t> expected;
        for (size_t k = 0; k < all.size(); ++k) {
          if (k / 4 % 2 == rank) expected.push_back(all[k]);
        }
        CHECK(indices_of(*sampler, epoch, rank) == expected);
      }
    }
  }
}

TEST_CASE("accelerate: what it refuses itself") {
  SamplerSpec spec = job(10, 3, 4, "1");
  spec.args.split_batches = true;
  CHECK(refusal_of(spec).starts_with("split_batches:"));
  CHECK(refusal_of(job(0, 2, 4, "1")).starts_with("n:"));
  CHECK(refusal_of(job(9, 2, 4, "")).starts_with("seed: missing"));
  SamplerSpec state = job(9, 2, 4, "");
  state.args.state = "AAAA";
  CHECK(refusal_of(state).starts_with("state:"));
  SamplerSpec own = job(9, 2, 4, "1");
  own.args.use_seedable_sampler = false;
  own.generator = TorchGeneratorUse::sampler;
  CHECK(refusal_of(own).starts_with("generator:"));
}
