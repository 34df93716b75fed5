#include "plan/random/numpy_integers.h"

#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

TEST_CASE("numpy.random.default_rng(seed).integers(low, high), one call after the other") {
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_default_rng")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "integers") continue;
    const int64_t low = golden::integer(params.at("low"));
    const int64_t count = golden::integer(params.at("high")) - low;
    if (count >= int64_t{1} << 32) continue;  // drawn with 64 bits, or without a bound: no sampler does
    INFO(test.at("id"));
    Pcg64 random(SeedSequence(std::vector{BigInteger::parse(params.at("seed").get<std::string>()).value()}));
    std::vector<int64_t> values;
    for (int i = 0; i < 20; ++i) values.push_back(low + numpy_below(random, static_cast<uint32_t>(count)));
    CHECK(golden::same_sequence(test.at("result").at("values"), values));
    ++checked;
  }
  CHECK(checked == 3);
}

TEST_CASE("numpy.random.default_rng(0).random()") {
  // The 53 high bits of the first two words of seed 0, 11749869230777074271 and 4976686463289251617.
  Pcg64 random(SeedSequence(std::vector{BigInteger(0)}));
  CHECK(numpy_double(random) == static_cast<double>(11749869230777074271U >> 11) / 9007199254740992.0);
  CHECK(numpy_double(random) == static_cast<double>(4976686463289251617U >> 11) / 9007199254740992.0);
}
