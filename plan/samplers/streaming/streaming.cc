// MosaicML's StreamingDataset whose samples all come once an epoch. Several streams are then as one that has
// the shards of all, in their order (resample_streams()). Source: mosaicml/streaming,
// streaming/base/dataset.py, batching/random.py (0.5 to 0.14).
#include <algorithm>
#include <cerrno>
#include <numeric>

#include "plan/samplers/families.h"
#include "plan/samplers/streaming/partition.h"
#include "plan/samplers/streaming/shuffle.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr uint64_t kDefaultShuffleSeed = 9176;
constexpr uint64_t kMostCanonicalNodes = 1 << 20;      // a list each: some megabytes
constexpr uint64_t kSmallestBlock = 4;                 // a quarter of it is a sample
constexpr uint64_t kLargestBlock = uint64_t{1} << 31;  // samples; draws stay within 32 bits

class Streaming : public Sampler {
 public:
  Streaming(const SamplerSpec& spec, std::optional<StreamingShuffle> shuffle, StreamingPartition partition,
            StreamingPartition resumed)
      : Sampler(spec.world),
        first_epoch_(spec.first_epoch),
        shuffle_(std::move(shuffle)),
        partition_(std::move(partition)),
        resumed_(std::move(resumed)) {}

  RankSlice slice(Epoch epoch, TrainingRank rank) const override {
    const StreamingPartition& partition = of_epoch(epoch);
    return span_slice(partition.begin(rank.value), partition.begin(uint64_t{rank.value} + 1));
  }

 private:
  const StreamingPartition& of_epoch(Epoch epoch) const {
    return epoch.value == first_epoch_ ? resumed_ : partition_;
  }

  Result<IndexOrder> make_order(Epoch epoch) override {
    std::vector<uint32_t> shuffled;
    if (shuffle_) shuffled = streaming_shuffle(*shuffle_, epoch);
    return IndexOrder(of_epoch(epoch).order(shuffled));
  }

  const uint32_t first_epoch_;
  const std::optional<StreamingShuffle> shuffle_;
  const StreamingPartition partition_;
  const StreamingPartition resumed_;  // of first_epoch_
};

// num_canonical_nodes as _set_canonical_num_nodes() sets it, on the nodes of the initial run.
uint64_t canonical_nodes(const SamplerSpec& spec, uint64_t nodes) {
  if (spec.args.num_canonical_nodes != 0) return spec.args.num_canonical_nodes;
  constexpr uint64_t kNodesPerNode = 64;
  const bool by_shard = spec.args.shuffle_algo == "py1s" || spec.args.shuffle_algo == "py2s";
  return (by_shard ? kNodesPerNode : 1) *
         (spec.args.initial_physical_nodes != 0 ? spec.args.initial_physical_nodes : nodes);
}

Result<StreamingShuffle> shuffle_of(const SamplerSpec& spec, uint64_t canonical) {
  const std::string name = spec.args.shuffle_algo.empty() ? "py1e" : spec.args.shuffle_algo;
  const auto algorithm = parse_streaming_algorithm(name);
  if (!algorithm)
    return bad_key("shuffle_algo", "'" + name + "' is unknown; want py1e, py1s, py2s, py1b, py1br or naive");
  const Result<BigInteger> seed = integer_seed_or(spec, kDefaultShuffleSeed);
  if (!seed) return seed.error();
  if (seed->negative()) return bad_key("seed", "shuffle_seed is an integer >= 0");
  uint64_t block = spec.args.shuffle_block_size;
  if (block == 0) block = std::max<uint64_t>(4'000'000 / canonical, 1 << 18);
  if (block < kSmallestBlock || block >= kLargestBlock)
    return bad_key("shuffle_block_size", "want 4 to 2^31 - 1");
  if (*algorithm == StreamingAlgorithm::py1e && spec.n < canonical) {
    return bad_key("num_canonical_nodes", "py1e refuses more of them than samples");
  }
  StreamingShuffle shuffle{.algorithm = *algorithm,
                           .shard_sizes = {},
                           .canonical_nodes = canonical,
                           .seed = *seed,
                           .block_size = static_cast<uint32_t>(block)};
  if (*algorithm == StreamingAlgorithm::naive) {  // does not know of shards
    shuffle.shard_sizes = {static_cast<uint32_t>(spec.n)};
    return shuffle;
  }
  if (!spec.shard_sizes) {
    return bad_key("shard_sizes",
                   "missing; want the samples of each shard: the dataset's index.json, or an array");
  }
  shuffle.shard_sizes = *spec.shard_sizes;
  const uint64_t total = std::accumulate(shuffle.shard_sizes.begin(), shuffle.shard_sizes.end(), uint64_t{0});
  if (total != spec.n) {
    return bad_key("shard_sizes", "they add up to " + std::to_string(total) + " samples, the dataset has " +
                                      std::to_string(spec.n));
  }
  return shuffle;
}

Result<StreamingPartition> partition_of(const SamplerSpec& spec, uint64_t canonical, uint64_t drop_first) {
  const StreamingJob job{.samples = spec.n,
                         .canonical_nodes = canonical,
                         .physical_nodes = spec.world / spec.ranks_per_node,
                         .ranks_per_node = spec.ranks_per_node,
                         .workers_per_rank = std::max<uint32_t>(spec.workers, 1),
                         .batch_size = spec.batch,
                         .drop_first = drop_first};
  return spec.args.initial_physical_nodes == 0
             ? StreamingPartition::make(job)
             : StreamingPartition::make_relaxed(job, spec.args.initial_physical_nodes);
}

}  // namespace

SamplerResult make_streaming(const SamplerSpec& spec) {
  if (spec.n == 0) return bad_key("n", "a stream has at least one sample");
  if (spec.ranks_per_node == 0 || spec.world % spec.ranks_per_node != 0) {
    return bad_key("ranks_per_node", "want a divisor of world");
  }
  if (spec.args.sample_in_epoch >= spec.n) {
    return bad_key(
        "sample_in_epoch",
        "want less than the dataset has; who has seen all of an epoch goes on with the next one: 0, "
        "and first_epoch one higher");
  }
  const uint64_t canonical = canonical_nodes(spec, spec.world / spec.ranks_per_node);
  if (canonical > kMostCanonicalNodes) return bad_key("num_canonical_nodes", "want at most 1048576");
  std::optional<StreamingShuffle> shuffle;
  if (spec.shuffle) {
    Result<StreamingShuffle> made = shuffle_of(spec, canonical);
    if (!made) return made.error();
    shuffle = std::move(*made);
  }
  Result<StreamingPartition> whole = partition_of(spec, canonical, 0);
  if (!whole) return whole.error();
  Result<StreamingPartition> resumed = partition_of(spec, canonical, spec.args.sample_in_epoch);
  if (!resumed) return resumed.error();
  if (const Status size = check_size("n", whole->begin(spec.world)); !size) return size.error();
  return SamplerResult(
      std::make_unique<Streaming>(spec, std::move(shuffle), std::move(*whole), std::move(*resumed)));
}

}  // namespace clairfs
