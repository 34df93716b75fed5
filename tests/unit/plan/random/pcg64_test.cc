#include "plan/random/pcg64.h"

#include "plan/random/numpy_shuffle.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

Pcg64 default_rng(const std::string& seed) {
  const std::vector<BigInteger> entropy = {BigInteger::parse(seed).value()};
  return Pcg64(SeedSequence(entropy));
}

}  // namespace

TEST_CASE("seed sequences and PCG64 outputs are NumPy's") {
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_default_rng")) {
    if (test.at("params").at("kind") != "init") continue;
    INFO(test.at("id"));
    const std::string seed = test.at("params").at("seed");
    const std::vector<BigInteger> entropy = {BigInteger::parse(seed).value()};
    CHECK(SeedSequence(entropy).generate(8) ==
          test.at("result").at("seed_sequence_uint32x8").get<std::vector<uint32_t>>());
    Pcg64 generator = default_rng(seed);
    for (const auto& expected : test.at("result").at("uint64")) {
      CHECK(std::to_string(generator.next64()) == expected.get<std::string>());
    }
    ++checked;
  }
  CHECK(checked == 9);
}

TEST_CASE("the high half of an output waits for the next 32-bit draw") {
  Pcg64 halves = default_rng("42");
  Pcg64 whole = default_rng("42");
  const uint64_t first = whole.next64();
  CHECK(halves.next32() == static_cast<uint32_t>(first));
  CHECK(halves.next64() == whole.next64());
  CHECK(halves.next32() == static_cast<uint32_t>(first >> 32));
}

TEST_CASE("shuffling any array, then a list, takes the same draws as in NumPy") {
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_default_rng")) {
    if (test.at("params").at("kind") != "shuffle_then_list") continue;
    INFO(test.at("id"));
    Pcg64 generator = default_rng(test.at("params").at("seed"));
    const uint32_t n = test.at("params").at("n");
    std::vector<uint32_t> array(n);
    std::vector<uint32_t> list(n);
    for (uint32_t i = 0; i < n; ++i) {
      array[i] = i % 200;
      list[i] = i;
    }
    numpy_shuffle(generator, array);
    numpy_shuffle(generator, list);
    CHECK(golden::same_sequence(test.at("result").at("shuffled_array"), array));
    CHECK(golden::same_sequence(test.at("result").at("then_list"), list));
    ++checked;
  }
  CHECK(checked == 6);
}
