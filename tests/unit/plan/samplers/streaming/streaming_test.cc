#include <set>

#include "plan/samplers/streaming/partition.h"
#include "plan/samplers/streaming/shuffle.h"
#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

std::shared_ptr<const std::vector<uint32_t>> shards(std::vector<uint32_t> sizes) {
  return std::make_shared<const std::vector<uint32_t>>(std::move(sizes));
}

SamplerSpec job() {
  SamplerSpec spec{.sampler = "streaming", .n = 545, .world = 4, .batch = 4};
  spec.ranks_per_node = 2;
  spec.workers = 3;
  spec.shard_sizes = shards({7, 100, 33, 64, 1, 250, 90});
  return spec;
}

}  // namespace

TEST_CASE("a StreamingDataset partitions its shuffle") {
  SamplerSpec spec = job();
  spec.args.shuffle_algo = "py1br";
  spec.args.shuffle_block_size = 64;
  spec.args.num_canonical_nodes = 4;
  spec.seed = "5";
  const auto sampler = sampler_of(spec);
  const auto partition = StreamingPartition::make({.samples = 545,
                                                   .canonical_nodes = 4,
                                                   .physical_nodes = 2,
                                                   .ranks_per_node = 2,
                                                   .workers_per_rank = 3,
                                                   .batch_size = 4})
                             .value();
  const auto order = partition.order(streaming_shuffle({.algorithm = StreamingAlgorithm::py1br,
                                                        .shard_sizes = *spec.shard_sizes,
                                                        .canonical_nodes = 4,
                                                        .seed = BigInteger(5),
                                                        .block_size = 64},
                                                       Epoch(3)));
  std::set<uint32_t> all;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto mine = indices_of(*sampler, 3, rank);
    CHECK(mine == std::vector(order.begin() + static_cast<std::ptrdiff_t>(partition.begin(rank)),
                              order.begin() + static_cast<std::ptrdiff_t>(partition.begin(rank + 1))));
    all.insert(mine.begin(), mine.end());
  }
  CHECK(all.size() == 545);  // each sample once, two of them twice
}

TEST_CASE("what a StreamingDataset takes if it is not told") {
  SamplerSpec spec = job();
  const auto usual = indices_of(*sampler_of(spec), 1, 2);
  spec.seed = "9176";
  spec.args.shuffle_algo = "py1e";
  spec.args.num_canonical_nodes = 2;
  spec.args.shuffle_block_size = 2'000'000;
  CHECK(indices_of(*sampler_of(spec), 1, 2) == usual);

  SamplerSpec by_shard = job();
  by_shard.args.shuffle_algo = "py1s";
  const auto wide = indices_of(*sampler_of(by_shard), 1, 2);
  by_shard.args.num_canonical_nodes = 128;
  CHECK(indices_of(*sampler_of(by_shard), 1, 2) == wide);
  by_shard.args.initial_physical_nodes = 2;
  by_shard.args.num_canonical_nodes = 0;
  CHECK(indices_of(*sampler_of(by_shard), 1, 2) == wide);
}

TEST_CASE("a resumed StreamingDataset goes on within its epoch") {
  SamplerSpec spec = job();
  const auto whole = sampler_of(spec);
  spec.first_epoch = 2;
  spec.args.sample_in_epoch = 96;  // six steps of four ranks
  const auto resumed = sampler_of(spec);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    auto rest = indices_of(*whole, 2, rank);
    rest.erase(rest.begin(), rest.begin() + 24);
    CHECK(indices_of(*resumed, 2, rank) == rest);
    CHECK(indices_of(*resumed, 3, rank) == indices_of(*whole, 3, rank));
  }
}

TEST_CASE("a StreamingDataset that does not shuffle needs no shards") {
  SamplerSpec spec = job();
  spec.shard_sizes = nullptr;
  CHECK(refusal_of(spec).starts_with("shard_sizes: missing"));
  spec.shuffle = false;
  spec.args.num_canonical_nodes = 2;
  CHECK(indices_of(*sampler_of(spec), 0, 0)[1] == 2);
  spec.shuffle = true;
  spec.args.shuffle_algo = "naive";
  CHECK(indices_of(*sampler_of(spec), 0, 0).size() == 137);
}

TEST_CASE("a StreamingDataset's plan that cannot be right is refused") {
  const auto refused = [](auto change) {
    SamplerSpec spec = job();
    change(spec);
    return refusal_of(spec);
  };
  CHECK(refused([](SamplerSpec& s) {
          s.shard_sizes = shards({500, 44});
        }).starts_with("shard_sizes: they add up to 544"));
  CHECK(refused([](SamplerSpec& s) { s.args.shuffle_algo = "py9"; }).starts_with("shuffle_algo:"));
  CHECK(refused([](SamplerSpec& s) { s.args.shuffle_block_size = 3; }).starts_with("shuffle_block_size:"));
  CHECK(refused([](SamplerSpec& s) { s.seed = "-1"; }).starts_with("seed:"));
  CHECK(refused([](SamplerSpec& s) { s.args.num_canonical_nodes = 3; }).starts_with("num_canonical_nodes:"));
  CHECK(
      refused([](SamplerSpec& s) { s.args.num_canonical_nodes = 1024; }).starts_with("num_canonical_nodes:"));
  CHECK(refused([](SamplerSpec& s) { s.ranks_per_node = 3; }).starts_with("ranks_per_node:"));
  CHECK_THAT(refused([](SamplerSpec& s) { s.args.sample_in_epoch = 545; }),
             StartsWith("sample_in_epoch:") && Contains("first_epoch one higher"));
  CHECK(refused([](SamplerSpec& s) { s.n = 0; }).starts_with("n:"));
}
