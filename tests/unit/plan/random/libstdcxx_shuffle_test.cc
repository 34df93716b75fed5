#include "plan/random/libstdcxx_shuffle.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

std::vector<uint32_t> ascending(size_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

LibstdcxxShuffle family_of(const std::string& environment) {
  return std::stod(golden::version_of(environment, "gcc")) < 11 ? LibstdcxxShuffle::before_gcc11
                                                                : LibstdcxxShuffle::since_gcc11;
}

template <class Engine>
void check(const golden::Json& test) {
  for (const auto& [result, environments] : golden::answers(test)) {
    for (const std::string& environment : environments) {
      INFO(test.at("id") << " " << environment);
      Engine engine(static_cast<uint64_t>(golden::integer(test.at("params").at("seed"))));
      std::vector<uint32_t> order = ascending(test.at("params").at("n"));
      for (const auto& expected : result.at("epochs")) {
        libstdcxx_shuffle(order, engine, family_of(environment));
        CHECK(golden::same_sequence(expected, order));
      }
    }
  }
}

template <class Engine>
void check_against_this_compiler(uint32_t seed) {
  for (const size_t n : {0, 1, 2, 3, 10, 1001, 70000}) {
    Engine ours(seed);
    Engine theirs(seed);
    std::vector<uint32_t> order = ascending(n);
    std::vector<uint32_t> expected = order;
    libstdcxx_shuffle(order, ours, LibstdcxxShuffle::since_gcc11);
    std::shuffle(expected.begin(), expected.end(), theirs);
    INFO(n);
    CHECK(order == expected);
    CHECK(ours == theirs);
  }
}

}  // namespace

TEST_CASE("shuffles of three engines by GCC 10, 12, 14 and 16") {
  for (const auto& test : golden::cases("cxx_shuffle")) {
    const std::string engine = test.at("params").at("engine");
    if (engine == "mt19937") check<std::mt19937>(test);
    if (engine == "mt19937_64") check<std::mt19937_64>(test);
    if (engine == "minstd_rand0") check<std::minstd_rand0>(test);
  }
}

TEST_CASE("this compiler's std::shuffle agrees") {
  check_against_this_compiler<std::mt19937>(42);
  check_against_this_compiler<std::mt19937_64>(42);
  check_against_this_compiler<std::minstd_rand0>(42);
}
