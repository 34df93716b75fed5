#include "plan/random/python_random.h"

#include "plan/random/pcg64.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

PythonRandom random_of(const golden::Json& params) {
  const std::string seed = params.at("seed");
  if (params.at("seed_kind") == "str") return PythonRandom::from_string(seed);
  return PythonRandom(BigInteger::parse(seed).value());
}

/// getrandbits(width) put together from words as CPython does, as decimal text.
std::string getrandbits(PythonRandom& random, uint32_t width) {
  uint128_t value = 0;
  for (uint32_t at = 0; at < width; at += 32)
    value |= uint128_t{random.bits(std::min(width - at, 32U))} << at;
  std::string digits;
  do digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
  while ((value /= 10) != 0);
  return digits;
}

}  // namespace

TEST_CASE("seeding and bits are Python's") {
  size_t checked = 0;
  for (const auto& test : golden::cases("python_random")) {
    if (test.at("params").at("kind") != "raw") continue;
    INFO(test.at("id"));
    PythonRandom words = random_of(test.at("params"));
    for (const auto& expected : test.at("result").at("getrandbits32")) CHECK(words.bits(32) == expected);
    for (const auto& [width, expected] : test.at("result").at("getrandbits").items()) {
      PythonRandom fresh = random_of(test.at("params"));
      INFO(width);
      CHECK(getrandbits(fresh, static_cast<uint32_t>(std::stoul(width))) == expected.get<std::string>());
    }
    ++checked;
  }
  CHECK(checked == 12);
}

TEST_CASE("random.sample is Python's, from a pool and from a set") {
  size_t checked = 0;
  for (const auto& test : golden::cases("python_random")) {
    if (test.at("params").at("kind") != "sample") continue;
    INFO(test.at("id"));
    PythonRandom random = random_of(test.at("params"));
    for (const auto& call : test.at("result").at("calls")) {
      CHECK(golden::same_sequence(call, random.sample(test.at("params").at("n"), test.at("params").at("k"))));
    }
    ++checked;
  }
  CHECK(checked == 11);
}
