#include <set>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

std::string list_text(const golden::Json& seeds) {
  std::string text;
  for (const auto& seed : seeds) text += (text.empty() ? "[" : ", ") + seed.get<std::string>();
  return text + "]";
}

/// Consecutive calls of permutation(n) are consecutive epochs.
void check_calls(const golden::Json& test, const std::string& name, const std::string& seed) {
  INFO(test.at("id"));
  const golden::Json& calls = test.at("result").at("calls");
  const auto sampler = sampler_of({.sampler = name, .n = test.at("params").at("n"), .seed = seed});
  for (uint32_t epoch = 0; epoch < calls.size(); ++epoch) {
    CHECK(golden::same_sequence(calls[epoch], indices_of(*sampler, epoch)));
  }
}

SamplerSpec spec(const std::string& name, const PlanPairs& extra = {}) {
  PlanPairs keys = {{"sampler", name}, {"n", "1000"}, {"seed", "42"}};
  keys.insert(keys.end(), extra.begin(), extra.end());
  return spec_of(keys);
}

}  // namespace

TEST_CASE("numpy.random.default_rng(seed).permutation(n)") {
  std::set<std::string> others;
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_default_rng")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "permutation") {
      others.insert(params.at("kind").get<std::string>());
      continue;
    }
    const bool list = params.contains("seed_list");
    check_calls(test, "numpy.default_rng",
                list ? list_text(params.at("seed_list")) : params.at("seed").get<std::string>());
    ++checked;
  }
  CHECK(checked == 112);
  // init and shuffle_then_list are tested with the generator; no sampler draws by choice() or integers().
  CHECK(others == std::set<std::string>{"init", "shuffle_then_list", "choice_norepl", "integers"});
}

TEST_CASE("numpy.random.RandomState(seed).permutation(n)") {
  size_t checked = 0;
  for (const auto& test : golden::cases("numpy_randomstate")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "permutation") continue;
    const bool list = params.at("seed_kind") == "array";
    check_calls(test, "numpy.legacy",
                list ? list_text(params.at("seed")) : params.at("seed").get<std::string>());
    ++checked;
  }
  CHECK(checked == 110);
}

TEST_CASE("method=shuffle goes on with the list of the epoch before") {
  for (const std::string name : {"numpy.default_rng", "numpy.legacy", "python.random"}) {
    INFO(name);
    const auto fresh = sampler_of(spec(name, {{"method", "permutation"}}));
    const auto carried = sampler_of(spec(name, {{"method", "shuffle"}}));
    std::vector<uint32_t> list = indices_of(*fresh, 0);
    CHECK(indices_of(*carried, 0) == list);
    for (uint32_t epoch = 1; epoch < 5; ++epoch) {
      // The same draws, applied to the list so far: position k of the result comes from position p[k].
      std::vector<uint32_t> next;
      for (const uint32_t position : indices_of(*fresh, epoch)) next.push_back(list[position]);
      list = next;
      CHECK(indices_of(*carried, epoch) == list);
    }
    CHECK(indices_of(*carried, 1) == indices_of(*sampler_of(spec(name, {{"method", "shuffle"}})), 1));
  }
}

TEST_CASE("reseed=epoch is a fresh generator from seed + epoch") {
  for (const std::string name : {"numpy.default_rng", "numpy.legacy", "python.random"}) {
    INFO(name);
    for (const std::string method : {"permutation", "shuffle"}) {
      const auto reseeded = sampler_of(spec(name, {{"reseed", "epoch"}, {"method", method}}));
      SamplerSpec other = spec(name);
      other.seed = "45";
      CHECK(indices_of(*reseeded, 3) == indices_of(*sampler_of(other), 0));
    }
  }
}

TEST_CASE("seeds that NumPy does not take are refused") {
  for (const char* seed : {"", "-1", "4.2", "[", "[]", "[1,]", "[1,-2]", "None"}) {
    INFO(seed);
    CHECK(refusal_of({.sampler = "numpy.default_rng", .n = 5, .seed = seed}).starts_with("seed:"));
    CHECK(refusal_of({.sampler = "numpy.legacy", .n = 5, .seed = seed}).starts_with("seed:"));
  }
  CHECK(refusal_of({.sampler = "numpy.legacy", .n = 5, .seed = "4294967296"}).starts_with("seed:"));
  SamplerSpec last{.sampler = "numpy.legacy", .n = 5, .seed = "4294967295", .reseed = Reseed::epoch};
  CHECK_FALSE(sampler_of(last)->order(Epoch(1)));
  CHECK(refusal_of(spec("numpy.legacy", {{"method", "sample"}})).starts_with("method:"));
}
