#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("tf.data shuffles, repeated ones and such with a whole buffer included") {
  size_t checked = 0;
  for (const auto& test : golden::cases("tf_shuffle")) {
    INFO(test.at("id"));
    const golden::Json& params = test.at("params");
    // The vectors give the op's pair of seeds, which is (global, op) when both are set.
    SamplerSpec spec{.sampler = "tf.shuffle", .n = params.at("n"), .seed = params.at("seed2")};
    spec.args.global_seed = params.at("seed").get<std::string>();
    const int64_t buffer = params.at("buffer_size");
    spec.args.buffer_size = buffer < 0 ? 0 : static_cast<uint64_t>(buffer);
    spec.args.reshuffle_each_iteration = params.at("reshuffle_each_iteration");
    const auto sampler = sampler_of(spec);
    uint32_t epoch = 0;
    for (const auto& iteration : test.at("result").at("iterations")) {
      std::vector<uint32_t> indices;
      for (int64_t i = 0; i < params.at("count"); ++i) {
        const auto more = indices_of(*sampler, epoch++);
        indices.insert(indices.end(), more.begin(), more.end());
      }
      CHECK(golden::same_sequence(iteration, indices));
    }
    ++checked;
  }
  CHECK(checked == 5);
}

TEST_CASE("tf.data: seeds are taken modulo 2^31 - 1, and a global one stands for itself") {
  const auto order = [](const std::string& global, const std::string& op) {
    return indices_of(
        *sampler_of({.sampler = "tf.shuffle", .n = 50, .seed = op, .args = {.global_seed = global}}), 1);
  };
  CHECK(order("", "5") == order("87654321", "5"));
  CHECK(order("", "5") != order("1", "5"));
  CHECK(order("3", "2147483652") == order("3", "5"));
  CHECK(order("3", "-2147483642") == order("3", "5"));
  CHECK(order("-1", "5") == order("2147483646", "5"));
  CHECK(order("0", "0") != order("1", "0"));
  CHECK(refusal_of({.sampler = "tf.shuffle", .n = 5}).starts_with("seed: missing"));
}

TEST_CASE("tf.data: a job that resumes draws from the first pair of seeds again") {
  SamplerSpec spec{.sampler = "tf.shuffle", .n = 50, .seed = "5"};
  const auto whole = sampler_of(spec);
  spec.first_epoch = 3;
  const auto resumed = sampler_of(spec);
  CHECK(indices_of(*resumed, 3) == indices_of(*whole, 0));
  CHECK(indices_of(*resumed, 5) == indices_of(*whole, 2));
  CHECK(indices_of(*resumed, 3) != indices_of(*whole, 3));
}

TEST_CASE("tf.data: list_files is a shuffle with a buffer for all") {
  const SamplerSpec files{.sampler = "tf.list_files", .n = 100, .seed = "7"};
  const SamplerSpec shuffle{.sampler = "tf.shuffle", .n = 100, .seed = "7", .args = {.buffer_size = 100}};
  for (const uint32_t epoch : {0U, 3U})
    CHECK(indices_of(*sampler_of(files), epoch) == indices_of(*sampler_of(shuffle), epoch));
}

TEST_CASE("tf.data: shards before and after the shuffle") {
  SamplerSpec spec{.sampler = "tf.shuffle", .n = 11, .world = 3, .seed = "2", .args = {.buffer_size = 4}};
  const auto whole =
      indices_of(*sampler_of({.sampler = "tf.shuffle", .n = 11, .seed = "2", .args = {.buffer_size = 4}}), 1);
  for (uint32_t rank = 0; rank < 3; ++rank) {
    INFO("rank " << rank);
    spec.shard = ShardPlace::none;
    CHECK(indices_of(*sampler_of(spec), 1, rank) == whole);
    spec.shard = ShardPlace::after;
    std::vector<uint32_t> share;
    for (size_t k = rank; k < whole.size(); k += 3) share.push_back(whole[k]);
    CHECK(indices_of(*sampler_of(spec), 1, rank) == share);
    spec.shard = ShardPlace::before;
    const uint64_t mine = rank == 2 ? 3 : 4;
    std::vector<uint32_t> own = indices_of(
        *sampler_of({.sampler = "tf.shuffle", .n = mine, .seed = "2", .args = {.buffer_size = 4}}), 1);
    for (uint32_t& index : own) index = rank + index * 3;
    CHECK(indices_of(*sampler_of(spec), 1, rank) == own);
  }
}
