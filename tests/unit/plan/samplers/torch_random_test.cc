#include <algorithm>

#include "plan/samplers/torch_loader.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

TorchVersion torch_of(const std::string& environment) {
  return parse_torch_version(golden::version_of(environment, "torch")).value();
}

Mt19937 generator_of(const golden::Json& params) {
  return torch_generator(BigInteger::parse(params.at("seed").get<std::string>()).value()).value();
}

/// RandomSampler by itself, without a DataLoader: epochs from the sampler's draws alone.
void check_bare(const golden::Json& params, const golden::Json& result, TorchVersion torch) {
  const uint64_t n = params.at("n");
  const RandomSamplerDraws draws(
      {.n = n,
       .count = params.at("num_samples").is_null() ? n : params.at("num_samples").get<uint64_t>(),
       .replacement = params.at("replacement"),
       .default_generator = params.at("generator") == "default",
       .torch = torch});
  const bool exhaust = params.at("consume") == "exhaust";
  Mt19937 generator = generator_of(params);
  Mt19937 skipping = generator;
  for (const auto& expected : result.at("epochs")) {
    CHECK(golden::same_sequence(expected, draws.order(generator)));
    if (exhaust) draws.finish(generator);
    draws.skip(skipping);
  }
  if (exhaust) CHECK(generator.next64() == skipping.next64());
}

SamplerSpec loader_spec(const golden::Json& params) {
  SamplerSpec spec{.sampler = "torch.random", .n = params.at("n"), .seed = params.value("seed", "")};
  spec.batch = params.at("batch_size").is_null() ? 1 : params.at("batch_size").get<uint32_t>();
  spec.drop_last = params.at("drop_last");
  spec.args.persistent_workers = params.value("persistent_workers", false);
  if (params.value("generator", "explicit") == "default")
    spec.generator = TorchGeneratorUse::default_generator;
  if (params.value("sampler", "") == "distributed:3:1") {
    spec.sampler = "torch.distributed";
    spec.world = 3;
    spec.generator.reset();
  }
  return spec;
}

/// The script leaves the first epoch early: what it did not ask for was not drawn, but whole permutations
/// are.
void check_stopped(const golden::Json& params, const golden::Json& result, TorchVersion torch) {
  const uint64_t n = params.at("n");
  const RandomSamplerDraws draws({.n = n, .count = n, .torch = torch});
  Mt19937 generator = generator_of(params);
  bool first = true;
  for (const auto& epoch : result.at("epochs")) {
    generator.discard(kDrawsOfRandomInt64);
    std::vector<uint32_t> order = draws.order(generator);
    if (first) {
      order.resize(params.at("stop_after_batches_in_epoch0").get<size_t>() *
                   params.at("batch_size").get<size_t>());
    } else {
      draws.finish(generator);
    }
    CHECK(golden::same_sequence(epoch.at("delivered"), order));
    first = false;
  }
}

/// The loader has a generator, its sampler has none: only the base_seed comes from the former.
void check_sampler_without_generator(const golden::Json& params, const golden::Json& result,
                                     TorchVersion torch) {
  const uint64_t n = params.at("n");
  const RandomSamplerDraws draws({.n = n, .count = n, .default_generator = true, .torch = torch});
  Mt19937 generator(999);  // the vectors were made after torch.manual_seed(999)
  for (const auto& epoch : result.at("epochs")) {
    CHECK(golden::same_sequence(epoch.at("delivered"), draws.order(generator)));
    draws.finish(generator);
  }
}

}  // namespace

TEST_CASE("RandomSampler: replacement, num_samples, consumed to the end or not, every version") {
  size_t refused = 0;
  for (const auto& test : golden::cases("torch_random_sampler")) {
    const golden::Json& params = test.at("params");
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        if (!result.contains("error")) {
          check_bare(params, result, torch_of(environment));
          continue;
        }
        SamplerSpec spec{.sampler = "torch.random", .n = params.at("n"), .seed = params.at("seed")};
        spec.torch = torch_of(environment);
        if (!params.at("num_samples").is_null()) spec.num_samples = params.at("num_samples").get<uint64_t>();
        spec.replacement = params.at("replacement").get<bool>();
        refusal_of(spec);
        ++refused;
      }
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("DataLoader: who draws what, when") {
  size_t checked = 0;
  for (const auto& test : golden::cases("torch_dataloader")) {
    const golden::Json& params = test.at("params");
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        const TorchVersion torch = torch_of(environment);
        ++checked;
        if (!params.at("stop_after_batches_in_epoch0").is_null()) {
          check_stopped(params, result, torch);
          continue;
        }
        if (params.at("sampler") == "random_nogen") {
          check_sampler_without_generator(params, result, torch);
          continue;
        }
        SamplerSpec spec = loader_spec(params);
        spec.torch = torch;
        const auto sampler = sampler_of(spec);
        const uint32_t rank = spec.world == 3 ? 1 : 0;
        for (uint32_t epoch = 0; epoch < result.at("epochs").size(); ++epoch) {
          CHECK(golden::same_sequence(result.at("epochs")[epoch].at("delivered"),
                                      indices_of(*sampler, epoch, rank)));
        }
      }
    }
  }
  CHECK(checked == 61 * 4);
}

TEST_CASE("BatchSampler: whole batches with drop_last") {
  for (const auto& test : golden::cases("torch_batch_sampler")) {
    const golden::Json& params = test.at("params");
    SamplerSpec spec = loader_spec(params);
    const bool sequential = params.at("sampler") == "sequential";
    if (sequential) {
      spec.sampler = "torch.sequential";
    } else {
      spec.generator = TorchGeneratorUse::sampler;  // no DataLoader here, so no base_seed
    }
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        spec.torch = torch_of(environment);
        const auto sampler = sampler_of(spec);
        const golden::Json epochs = sequential ? golden::Json::array({result}) : result.at("epochs");
        for (uint32_t epoch = 0; epoch < epochs.size(); ++epoch) {
          CHECK(golden::same_sequence(epochs[epoch].at("flat"), indices_of(*sampler, epoch)));
        }
      }
    }
  }
}

TEST_CASE("any epoch can be asked for again, in any order") {
  for (const PlanPairs& extra :
       {PlanPairs{}, PlanPairs{{"persistent_workers", "true"}},
        PlanPairs{{"replacement", "true"}, {"num_samples", "77"}}, PlanPairs{{"generator", "default"}},
        PlanPairs{{"num_samples", "120"}}, PlanPairs{{"generator", "default"}, {"torch", "1.8"}}}) {
    PlanPairs keys = {{"sampler", "torch.random"}, {"seed", "42"}, {"n", "50"}};
    keys.insert(keys.end(), extra.begin(), extra.end());
    const auto forward = sampler_of(spec_of(keys));
    std::vector<std::vector<uint32_t>> expected;
    for (uint32_t epoch = 0; epoch < 12; ++epoch) expected.push_back(indices_of(*forward, epoch));
    const auto jumping = sampler_of(spec_of(keys));
    for (const uint32_t epoch : {7U, 3U, 3U, 11U, 0U, 8U, 1U})
      CHECK(indices_of(*jumping, epoch) == expected[epoch]);
    CHECK(expected[0] != expected[1]);
  }
}

TEST_CASE("a script on the default generator is planned from its state") {
  // torch.manual_seed(42): its state must give what the seed with generator=default gives.
  golden::Json blob;
  for (const auto& test : golden::cases("torch_state")) {
    if (test.at("params").at("seed") == "42" && test.at("params").at("draws") == 0) {
      blob = test.at("result").at("state_base64");
    }
  }
  const auto from_state =
      sampler_of(spec_of({{"sampler", "torch.random"}, {"n", "100"}, {"state", blob.get<std::string>()}}));
  const auto from_seed = sampler_of(
      spec_of({{"sampler", "torch.random"}, {"n", "100"}, {"seed", "42"}, {"generator", "default"}}));
  for (uint32_t epoch = 0; epoch < 3; ++epoch)
    CHECK(indices_of(*from_state, epoch) == indices_of(*from_seed, epoch));

  const auto message = refusal_of(spec_of({{"sampler", "torch.random"}, {"n", "9"}, {"state", "AAAA"}}));
  CHECK(message.find("5056") != std::string::npos);
}

TEST_CASE("what others draw from the generator between two epochs is skipped") {
  SamplerSpec spec{.sampler = "torch.random", .n = 50, .seed = "3"};
  spec.generator = TorchGeneratorUse::default_generator;
  spec.args.other_draws = 5;
  const auto sampler = sampler_of(spec);
  const RandomSamplerDraws draws({.n = 50, .count = 50, .default_generator = true, .torch = kNewestTorch});
  Mt19937 generator(3);
  std::vector<std::vector<uint32_t>> expected;
  for (uint32_t epoch = 0; epoch < 4; ++epoch) {
    if (epoch > 0) generator.discard(5);
    generator.discard(kDrawsOfRandomInt64);
    expected.push_back(draws.order(generator));
  }
  for (const uint32_t epoch : {0U, 1U, 3U, 2U}) CHECK(indices_of(*sampler, epoch) == expected[epoch]);
}

TEST_CASE("what others draw from the generator before the first epoch is skipped") {
  SamplerSpec spec{.sampler = "torch.random", .n = 50, .seed = "3"};
  spec.generator = TorchGeneratorUse::default_generator;
  spec.args.draws = 3736;
  const auto sampler = sampler_of(spec);
  const RandomSamplerDraws draws({.n = 50, .count = 50, .default_generator = true, .torch = kNewestTorch});
  Mt19937 generator(3);
  generator.discard(3736);
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    generator.discard(kDrawsOfRandomInt64);
    CHECK(indices_of(*sampler, epoch) == draws.order(generator));
  }
}

TEST_CASE("an epoch that no one can wait for is refused") {
  const auto sampler = sampler_of({.sampler = "torch.random", .n = 100'000'000, .seed = "42"});
  const auto order = sampler->order(Epoch(4'000'000'000));
  REQUIRE(!order);
  CHECK(order.error().code == ERANGE);
}
