
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

/// "0" or, in cases without set_epoch, "unset_pass0".
uint32_t epoch_of(const std::string& name) {
  const size_t digits = name.find_first_of("0123456789");
  return static_cast<uint32_t>(std::stoul(name.substr(digits)));
}

void check_ranks(const SamplerSpec& spec, const golden::Json& ranks) {
  const auto sampler = sampler_of(spec);
  for (const auto& [rank, expected] : ranks.items()) {
    const auto number = static_cast<uint32_t>(std::stoul(rank));
    for (const auto& [epoch, sequence] : expected.at("epochs").items()) {
      INFO("rank " << rank << " epoch " << epoch);
      CHECK(sampler->slice(Epoch(epoch_of(epoch)), TrainingRank(number)).count == expected.at("len"));
      CHECK(golden::same_sequence(sequence, indices_of(*sampler, epoch_of(epoch), number)));
    }
  }
}

}  // namespace

TEST_CASE("DistributedSampler: every rank, epoch and version") {
  size_t failing = 0;
  for (const auto& test : golden::cases("torch_distributed_sampler")) {
    const golden::Json& params = test.at("params");
    SamplerSpec spec{.n = params.at("n"), .world = params.at("num_replicas"), .seed = params.at("seed")};
    spec.shuffle = params.at("shuffle");
    spec.drop_last = params.at("drop_last");
    spec.set_epoch = !params.at("epochs").is_null();
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        spec.torch = parse_torch_version(golden::version_of(environment, "torch")).value();
        if (result.dump().find("AssertionError") != std::string::npos) {
          CHECK(refusal_of(spec).starts_with("world:"));
          ++failing;
        } else {
          check_ranks(spec, result.at("ranks"));
        }
      }
    }
  }
  CHECK(failing == 10);
}

TEST_CASE("the ranks of an epoch share one order") {
  const auto sampler = sampler_of({.n = 101, .world = 8, .seed = "42"});
  const IndexOrder order = sampler->order(Epoch(3)).value();
  for (uint32_t rank = 0; rank < 8; ++rank) {
    const RankOrder shared(order, sampler->slice(Epoch(3), TrainingRank(rank)));
    CHECK(shared.to_vector() == indices_of(*sampler, 3, rank));
  }
}

TEST_CASE("seed + epoch beyond torch's range is refused in the epoch where it happens") {
  const auto sampler = sampler_of({.n = 10, .seed = "18446744073709551614"});
  CHECK(sampler->order(Epoch(1)));
  const auto beyond = sampler->order(Epoch(2));
  REQUIRE(!beyond);
  CHECK(beyond.error().code == EINVAL);
  CHECK(beyond.error().message.starts_with("seed:"));
  CHECK(refusal_of({.n = 10, .seed = "18446744073709551616"}).starts_with("seed:"));
}

TEST_CASE("DistributedSampler without a seed has torch's default") {
  const auto unset = sampler_of({.n = 50});
  const auto zero = sampler_of({.n = 50, .seed = "0"});
  const auto one = sampler_of({.n = 50, .seed = "1"});
  CHECK(indices_of(*unset, 2) == indices_of(*zero, 2));
  CHECK(indices_of(*unset, 2) != indices_of(*one, 2));
}
