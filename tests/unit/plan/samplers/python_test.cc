
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

std::string seed_text(const golden::Json& params) {
  const std::string seed = params.at("seed");
  return params.at("seed_kind") == "str" ? "str:" + seed : seed;
}

}  // namespace

TEST_CASE("random.Random(seed): shuffle of a fresh list each epoch, and sample") {
  size_t checked = 0;
  for (const auto& test : golden::cases("python_random")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") == "raw") continue;  // tested with the generator
    SamplerSpec spec{.sampler = "python.random", .n = params.at("n"), .seed = seed_text(params)};
    if (params.at("kind") == "sample") {
      spec.method = ShuffleMethod::sample;
      spec.num_samples = params.at("k").get<uint64_t>();
    }
    INFO(test.at("id"));
    const auto sampler = sampler_of(spec);
    const golden::Json& calls = test.at("result").at("calls");
    for (uint32_t epoch = 0; epoch < calls.size(); ++epoch) {
      CHECK(golden::same_sequence(calls[epoch], indices_of(*sampler, epoch)));
    }
    ++checked;
  }
  CHECK(checked == 156);
}

TEST_CASE("what Python's random cannot do is refused") {
  CHECK(refusal_of({.sampler = "python.random", .n = 5}).starts_with("seed:"));
  CHECK(refusal_of({.sampler = "python.random", .n = 5, .seed = "abc"}).starts_with("seed:"));
  CHECK(refusal_of({.sampler = "python.random", .n = 5, .seed = "str:a", .reseed = Reseed::epoch})
            .starts_with("reseed:"));
  CHECK(refusal_of({.sampler = "python.random", .n = 5, .seed = "1", .num_samples = 3})
            .starts_with("num_samples:"));
  CHECK(refusal_of({.sampler = "python.random",
                    .n = 5,
                    .seed = "1",
                    .num_samples = 6,
                    .method = ShuffleMethod::sample})
            .starts_with("num_samples:"));
}
