#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

SamplerSpec job(const std::string& seed, uint64_t buffer, bool detshuffle = false) {
  SamplerSpec spec{.sampler = "webdataset", .n = 8, .seed = seed};
  spec.shardshuffle = buffer;
  spec.args.detshuffle = detshuffle;
  return spec;
}

}  // namespace

// The orders below were made by webdataset's own _shuffle() and pick() (filters.py), copied into a script, on
// Python 3.11: list(_shuffle(iter(range(8)), bufsize, 100, random.Random(seed))).
TEST_CASE("WebDataset's buffer of shards") {
  CHECK(indices_of(*sampler_of(job("42", 100)), 0) == std::vector<uint32_t>{1, 0, 5, 2, 7, 6, 4, 3});
  CHECK(indices_of(*sampler_of(job("42", 3)), 0) == std::vector<uint32_t>{2, 0, 3, 5, 1, 4, 7, 6});
  CHECK(indices_of(*sampler_of(job("42", 1)), 0) == std::vector<uint32_t>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(indices_of(*sampler_of(job("str:42", 100)), 0) == std::vector<uint32_t>{7, 3, 5, 2, 0, 6, 4, 1});
  CHECK(indices_of(*sampler_of(job("42", 100)), 9) == indices_of(*sampler_of(job("42", 100)), 0));
}

TEST_CASE("WebDataset without shardshuffle keeps the order and needs no seed") {
  const std::vector<uint32_t> all{0, 1, 2, 3, 4, 5, 6, 7};
  CHECK(indices_of(*sampler_of({.sampler = "webdataset", .n = 8}), 3) == all);
  CHECK(indices_of(*sampler_of(job("", 0)), 3) == all);
  CHECK(refusal_of(job("", 100)).starts_with("seed: missing"));
}

TEST_CASE("WebDataset's detshuffle counts epochs where the process lives on") {
  SamplerSpec spec = job("42", 100, true);
  const auto plain = [](const std::string& seed) { return indices_of(*sampler_of(job(seed, 100)), 0); };
  CHECK(indices_of(*sampler_of(spec), 3) == plain("45"));
  spec.workers = 1;
  CHECK(indices_of(*sampler_of(spec), 3) == plain("42"));
  spec.args.persistent_workers = true;
  CHECK(indices_of(*sampler_of(spec), 3) == plain("45"));
  // A job that resumes epoch 3 counts from 0 in its new process.
  spec.first_epoch = 3;
  CHECK(indices_of(*sampler_of(spec), 3) == plain("42"));
  CHECK(indices_of(*sampler_of(spec), 5) == plain("44"));
  spec.args.persistent_workers = false;
  CHECK(indices_of(*sampler_of(spec), 5) == plain("42"));
  CHECK(refusal_of(job("str:x", 100, true)).starts_with("seed:"));
  CHECK(refusal_of(job("1", 0, true)).starts_with("detshuffle:"));
}

// Made as above, of 11 shards, with a buffer of 6 and 3 at first; then [rank::2][worker::2].
TEST_CASE("a pipeline that shuffles all shards and then deals them, as open_clip's") {
  SamplerSpec spec{.sampler = "webdataset", .n = 11, .world = 2, .seed = "42"};
  spec.shardshuffle = 6;
  spec.args.initial = 3;
  spec.shard = ShardPlace::after;
  CHECK(indices_of(*sampler_of(spec), 0, 0) == std::vector<uint32_t>{0, 7, 1, 10, 8, 6});
  CHECK(indices_of(*sampler_of(spec), 0, 1) == std::vector<uint32_t>{3, 2, 9, 5, 4});
  SamplerSpec alone = spec;
  alone.world = 1;
  CHECK(indices_of(*sampler_of(alone), 0) == std::vector<uint32_t>{0, 3, 7, 2, 1, 9, 10, 5, 8, 4, 6});
  // The workers of a rank take turns, which gives the rank's order back.
  spec.workers = 2;
  CHECK(indices_of(*sampler_of(spec), 0, 1) == std::vector<uint32_t>{3, 2, 9, 5, 4});
  CHECK(indices_of(*sampler_of(spec), 3, 1) == std::vector<uint32_t>{3, 2, 9, 5, 4});
  spec.args.initial = 0;
  CHECK(indices_of(*sampler_of(spec), 0, 1) != std::vector<uint32_t>{3, 2, 9, 5, 4});
}

TEST_CASE("the epoch of a detshuffle may come from the script") {
  SamplerSpec spec{.sampler = "webdataset", .n = 11, .world = 2, .seed = "42", .workers = 2};
  spec.shardshuffle = 6;
  spec.args.initial = 3;
  spec.shard = ShardPlace::after;
  spec.args.detshuffle = true;
  const std::vector<uint32_t> first{0, 7, 1, 10, 8, 6};
  const std::vector<uint32_t> fourth{2, 5, 0, 10, 7, 6};  // of seed 45
  CHECK(indices_of(*sampler_of(spec), 0, 0) == first);
  CHECK(indices_of(*sampler_of(spec), 3, 0) == fourth);
  spec.first_epoch = 3;
  CHECK(indices_of(*sampler_of(spec), 3, 0) == fourth);
  spec.set_epoch = false;  // each worker counts, and ends with the epoch
  CHECK(indices_of(*sampler_of(spec), 6, 0) == first);
  spec.args.persistent_workers = true;
  CHECK(indices_of(*sampler_of(spec), 6, 0) == fourth);
  spec.set_epoch = true;
  spec.seed = "-1";
  CHECK(refusal_of(spec).starts_with("seed:"));
}

TEST_CASE("SimpleShardList(urls, seed=)") {
  SamplerSpec spec{.sampler = "webdataset", .n = 8, .seed = "42", .method = ShuffleMethod::shuffle};
  const std::vector<uint32_t> all{3, 4, 6, 7, 2, 5, 0, 1};  // random.Random(42).shuffle(list(range(8)))
  CHECK(indices_of(*sampler_of(spec), 0) == all);
  CHECK(indices_of(*sampler_of(spec), 5) == all);
  spec.world = 2;
  CHECK(indices_of(*sampler_of(spec), 0, 1) == std::vector<uint32_t>{4, 7, 5, 1});
  spec.shuffle = false;
  CHECK(indices_of(*sampler_of(spec), 0, 1) == std::vector<uint32_t>{1, 3, 5, 7});
}

TEST_CASE("parts of a WebDataset pipeline that do not go together are refused") {
  SamplerSpec spec = job("1", 10);
  spec.method = ShuffleMethod::shuffle;
  CHECK(refusal_of(spec).starts_with("method:"));
  spec.method = ShuffleMethod::sample;
  spec.shardshuffle = std::nullopt;
  CHECK(refusal_of(spec).starts_with("method:"));
  spec = job("1", 0);
  spec.args.initial = 5;
  CHECK(refusal_of(spec).starts_with("initial:"));
  spec = job("1", 10, true);
  spec.set_epoch = false;
  CHECK(refusal_of(spec).starts_with("set_epoch:"));
}

TEST_CASE("WebDataset deals shards to ranks, then to workers, whose turns alternate") {
  SamplerSpec spec{.sampler = "webdataset", .n = 11, .world = 2, .workers = 2};
  CHECK(indices_of(*sampler_of(spec), 0, 0) == std::vector<uint32_t>{0, 2, 4, 6, 8, 10});
  CHECK(indices_of(*sampler_of(spec), 0, 1) == std::vector<uint32_t>{1, 3, 5, 7, 9});
  spec.shardshuffle = 100;
  spec.seed = "42";
  const auto own = [](uint64_t n) {
    SamplerSpec alone{.sampler = "webdataset", .n = n, .seed = "42"};
    alone.shardshuffle = 100;
    return indices_of(*sampler_of(alone), 0);
  };
  const auto three = own(3);  // of rank 0, both workers have three shards; of rank 1 one has two
  const auto two = own(2);
  CHECK(indices_of(*sampler_of(spec), 0, 0) == std::vector<uint32_t>{0 + 4 * three[0], 2 + 4 * three[0],
                                                                     0 + 4 * three[1], 2 + 4 * three[1],
                                                                     0 + 4 * three[2], 2 + 4 * three[2]});
  CHECK(indices_of(*sampler_of(spec), 0, 1) == std::vector<uint32_t>{1 + 4 * three[0], 3 + 4 * two[0],
                                                                     1 + 4 * three[1], 3 + 4 * two[1],
                                                                     1 + 4 * three[2]});
  spec.workers = 12;
  CHECK(refusal_of(spec).starts_with("workers:"));
}
