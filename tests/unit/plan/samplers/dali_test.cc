
#include <string>

#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("DALI's FileReader: files opened by each shard, both families of GCC") {
  for (const auto& test : golden::cases("dali_file_reader")) {
    const golden::Json& params = test.at("params");
    SamplerSpec spec{.sampler = "dali", .n = params.at("n"), .world = params.at("num_shards")};
    spec.args.random_shuffle = params.value("random_shuffle", false);
    spec.args.stick_to_shard = params.value("stick_to_shard", false);
    spec.args.shuffle_after_epoch = params.value("shuffle_after_epoch", false);
    spec.args.checkpointing = params.value("checkpointing", false);
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

TEST_CASE("DALI's pipeline begins anew in a job that resumes, unless it has a checkpoint") {
  SamplerSpec spec{.sampler = "dali", .n = 60, .world = 3};
  const auto compare = [&](uint32_t first, uint32_t as_if) {
    SamplerSpec resumed = spec;
    resumed.first_epoch = first;
    const auto whole = sampler_of(spec);
    CHECK(indices_of(*sampler_of(resumed), 4, 1) == indices_of(*whole, as_if, 1));
    CHECK(indices_of(*sampler_of(resumed), 5, 1) == indices_of(*whole, as_if + 1, 1));
  };
  compare(4, 0);  // walks through the shards
  spec.args.shuffle_after_epoch = true;
  compare(4, 0);
  spec.args.checkpointing = true;
  compare(4, 4);
}

TEST_CASE("DALI refuses to shuffle both once and after each epoch") {
  SamplerSpec spec{.sampler = "dali", .n = 10};
  spec.args.random_shuffle = spec.args.shuffle_after_epoch = true;
  CHECK(refusal_of(spec).starts_with("shuffle_after_epoch:"));
}
