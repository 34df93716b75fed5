#include "plan/random/torch_random.h"

#include <algorithm>
#include <cmath>

#include "plan/random/base64.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

Mt19937 generator_of(const golden::Json& seed) {
  return torch_generator(BigInteger::parse(seed.get<std::string>()).value()).value();
}

TorchVersion torch_of(const std::string& environment) {
  const std::string text = golden::version_of(environment, "torch");
  const size_t dot = text.find('.');
  return {static_cast<uint32_t>(std::stoul(text.substr(0, dot))),
          static_cast<uint32_t>(std::stoul(text.substr(dot + 1)))};
}

std::vector<uint32_t> randperm(Mt19937& generator, size_t n, TorchVersion torch) {
  std::vector<uint32_t> order(n);
  torch_randperm(generator, order, torch);
  return order;
}

template <class Draw>
std::vector<int64_t> sequence(size_t count, Draw draw) {
  std::vector<int64_t> values(count);
  for (int64_t& value : values) value = static_cast<int64_t>(draw());
  return values;
}

void check_randperm(const std::string& section) {
  for (const auto& test : golden::cases(section)) {
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        Mt19937 generator = generator_of(test.at("params").at("seed"));
        for (const auto& call : result.at("calls")) {
          CHECK(golden::same_sequence(call,
                                      randperm(generator, test.at("params").at("n"), torch_of(environment))));
        }
        if (result.contains("next_random64")) {
          CHECK(static_cast<int64_t>(generator.next64()) == golden::integer(result.at("next_random64")));
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("torch generators: seeds and 64-bit draws") {
  size_t refused = 0;
  for (const auto& test : golden::cases("torch_rng")) {
    INFO(test.at("id"));
    const golden::Json& result = test.at("result");
    const BigInteger seed = BigInteger::parse(test.at("params").at("seed").get<std::string>()).value();
    if (result.contains("error")) {
      REQUIRE(!torch_generator(seed));
      CHECK(torch_generator(seed).error().code == EINVAL);
      ++refused;
      continue;
    }
    Mt19937 raw = torch_generator(seed).value();
    CHECK(golden::same_sequence(result.at("random64_as_int64"), sequence(400, [&] { return raw.next64(); })));
    Mt19937 seeds = torch_generator(seed).value();
    CHECK(golden::same_sequence(result.at("random_int64_noarg"),
                                sequence(8, [&] { return torch_random_int64(seeds); })));
    Mt19937 base_seeds = torch_generator(seed).value();
    for (const auto& expected : result.at("base_seed_style")) {
      CHECK(torch_random_int64(base_seeds) == static_cast<uint64_t>(golden::integer(expected)));
    }
  }
  CHECK(refused == 2);
}

TEST_CASE("torch.randint: the switch to wide draws depends on the version") {
  for (const auto& test : golden::cases("torch_randint")) {
    const auto high = static_cast<uint64_t>(golden::integer(test.at("params").at("high")));
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        Mt19937 generator = generator_of(test.at("params").at("seed"));
        const bool wide = torch_randint_is_wide(high, torch_of(environment));
        CHECK(golden::same_sequence(result.at("values"),
                                    sequence(64, [&] { return torch_randint(generator, high, wide); })));
      }
    }
  }
}

TEST_CASE("torch.randperm") {
  check_randperm("torch_randperm");
}

// 860 MB and a minute of computing: hidden from those who run all cases, a slow test of its own to ctest.
TEST_CASE("torch.randperm on both sides of its size threshold", "[.huge]") {
  check_randperm("torch_randperm_huge");
}

TEST_CASE("randperm takes as many draws as it says") {
  for (const uint64_t n : {0, 1, 2, 1000}) {
    Mt19937 drawn(3);
    Mt19937 skipped(3);
    randperm(drawn, n, kNewestTorch);
    skipped.discard(torch_randperm_draws(n, kNewestTorch));
    INFO(n);
    CHECK(drawn.next32() == skipped.next32());
  }
  CHECK(torch_randperm_draws(214748363, {2, 6}) == 214748362);
  CHECK(torch_randperm_draws(214748364, {2, 6}) == 2 * 214748364ULL);
  CHECK(torch_randperm_draws(214748364, {2, 5}) == 214748363);
}

TEST_CASE("a generator goes on from its saved state") {
  for (const auto& test : golden::cases("torch_state")) {
    INFO(test.at("id"));
    const golden::Json& result = test.at("result");
    const std::string blob = decode_base64(result.at("state_base64").get<std::string>()).value();
    auto generator = torch_generator_from_state(blob);
    REQUIRE(generator);
    CHECK(golden::same_sequence(result.at("randperm20_after"), randperm(*generator, 20, kNewestTorch)));
    CHECK(
        golden::same_sequence(result.at("random64_after"), sequence(4, [&] { return generator->next64(); })));
  }
}

TEST_CASE("what is no generator state is refused") {
  const std::string good =
      decode_base64(golden::cases("torch_state")[1].at("result").at("state_base64").get<std::string>())
          .value();
  REQUIRE(torch_generator_from_state(good));
  const auto with = [&](size_t at, char byte) {
    std::string bad = good;
    bad[at] = byte;
    return bad;
  };
  const std::string shorter = good.substr(1);
  for (const std::string& bad : {shorter, good + "x", std::string(), with(12, 0), with(8, 3),
                                 with(11, '\x7f'), with(16, 99), with(23, 1)}) {
    const auto generator = torch_generator_from_state(bad);
    REQUIRE(!generator);
    CHECK(generator.error().code == EINVAL);
  }
}

TEST_CASE("multinomial finds what torch's binary search finds") {
  std::vector<double> weights(1000);
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = i % 7 == 0 ? 0.0 : std::pow(0.97, static_cast<double>(i));
  weights.back() = 0;
  std::vector<double> cumulative;
  double total = 0;
  for (const double weight : weights) cumulative.push_back(total += weight);
  for (double& value : cumulative) value /= total;
  cumulative.back() = 1;

  const TorchMultinomial multinomial(weights);
  Mt19937 ours(5);
  Mt19937 theirs(5);
  for (int i = 0; i < 20000; ++i) {
    const double u = static_cast<double>(theirs.next64() & ((uint64_t{1} << 53) - 1)) * 0x1p-53;
    const auto expected = std::lower_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin();
    REQUIRE(multinomial.draw(ours) == expected);
  }
}
