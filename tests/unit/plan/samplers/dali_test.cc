
#include <string>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("DALI's FileReader: files opened by each shard, both families of GCC") {
  for (const auto& test : golden::cases("dali_file_reader")) {
    const golden::Json& params = test.at("params");
    SamplerSpec spec{.sampler = "dali", .n = params.at("n"), .world = params.at("num_shards")};
    spec.random_shuffle = params.value("random_shuffle", false);
    spec.stick_to_shard = params.value("stick_to_shard", false);
    spec.shuffle_after_epoch = params.value("shuffle_after_epoch", false);
    spec.checkpointing = params.value("checkpointing", false);
    for (const auto& [result, environments] : golden::answers(test)) {
      for (const std::string& environment : environments) {
        INFO(test.at("id") << " " << environment);
        spec.libstdcxx = libstdcxx_shuffle_of(std::stoull(golden::version_of(environment, "gcc")));
        const auto sampler = sampler_of(spec);
        const golden::Json& epochs = result.at("epochs");
        for (auto epoch = static_cast<uint32_t>(epochs.size()); epoch-- > 0;) {  // backwards, too
          CHECK(golden::same_sequence(epochs[epoch], indices_of(*sampler, epoch, params.at("shard_id"))));
        }
      }
    }
  }
}

TEST_CASE("DALI refuses to shuffle both once and after each epoch") {
  SamplerSpec spec{.sampler = "dali", .n = 10};
  spec.random_shuffle = spec.shuffle_after_epoch = true;
  CHECK(refusal_of(spec).starts_with("shuffle_after_epoch:"));
}
