// The shards that MosaicML's StreamingDataset copies from remote= to local=, in the order in which a node's
// workers come to need them.
// Source: mosaicml/streaming, streaming/base/dataset.py (_prepare_thread, prepare_shard): a thread of each
// worker goes through the samples that the worker will deliver, and copies the shard of each unless somebody
// on the node has begun to.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

class StreamingCopies : public Sampler {
 public:
  // `begins`: by node, where its shards begin; and one more.
  StreamingCopies(const SamplerSpec& spec, std::vector<uint32_t> shards, std::vector<uint64_t> begins)
      : Sampler(spec.world),
        first_epoch_(spec.first_epoch),
        ranks_per_node_(spec.ranks_per_node),
        shards_(std::move(shards)),
        begins_(std::move(begins)) {}

  // What is copied later depends on what local disks still have.
  std::optional<uint32_t> epoch_count() const override { return first_epoch_ + 1; }

  // Any worker of a node may be the one who copies a shard.
  RankSlice slice(Epoch, TrainingRank rank) const override {
    const uint64_t node = rank.value / ranks_per_node_;
    return span_slice(begins_[node], begins_[node + 1]);
  }

 private:
  Result<IndexOrder> make_order(Epoch) override { return shards_; }

  const uint32_t first_epoch_;
  const uint32_t ranks_per_node_;
  const IndexOrder shards_;
  const std::vector<uint64_t> begins_;
};

// Shards in the order of their first use.
class FirstUses {
 public:
  explicit FirstUses(const std::vector<uint32_t>& shard_sizes) : used_(shard_sizes.size()) {
    std::partial_sum(shard_sizes.begin(), shard_sizes.end(), std::back_inserter(ends_));
  }

  void use(uint32_t sample) {
    const auto shard = std::upper_bound(ends_.begin(), ends_.end(), sample) - ends_.begin();
    const auto number = static_cast<uint32_t>(shard);
    if (used_[number]) return;
    used_[number] = true;
    order_.push_back(number);
  }
  std::vector<uint32_t> take() {
    std::fill(used_.begin(), used_.end(), false);
    return std::exchange(order_, {});
  }

 private:
  std::vector<uint64_t> ends_;
  std::vector<bool> used_;
  std::vector<uint32_t> order_;
};

// As the node's workers go through their samples side by side: each rank's batches are its workers' in turns.
void use_of_node(const std::vector<RankOrder>& ranks, uint64_t batch, uint64_t workers, FirstUses& uses) {
  uint64_t longest = 0;
  for (const RankOrder& rank : ranks) longest = std::max(longest, rank.size());
  for (uint64_t turn = 0; turn < longest; turn += workers * batch) {
    for (uint64_t i = 0; i < batch; ++i) {
      for (const RankOrder& rank : ranks) {
        for (uint64_t k = turn + i; k < std::min(turn + workers * batch, rank.size()); k += batch)
          uses.use(rank[k]);
      }
    }
  }
}

}  // namespace

SamplerResult make_streaming_copies(const SamplerSpec& spec) {
  if (!spec.dataset_shuffle.empty()) {
    return bad_key(
        "dataset_shuffle",
        "StreamingDataset copies shards by its own shuffle alone; it is no dataset of Hugging Face's");
  }
  if (!spec.shard_sizes) {
    return bad_key("shard_sizes",
                   "missing; which shard is copied when needs the samples of each: the dataset's index.json");
  }
  const std::vector<uint32_t>& sizes = *spec.shard_sizes;
  if (sizes.size() != spec.n) {
    return bad_key("shard_sizes", "they are of " + std::to_string(sizes.size()) +
                                      " shards, the dataset has " + std::to_string(spec.n) +
                                      "; want file=PATTERN of the shards alone");
  }
  SamplerSpec of_samples = spec;
  of_samples.n = std::accumulate(sizes.begin(), sizes.end(), uint64_t{0});
  SamplerResult samples = make_streaming(of_samples);
  if (!samples) return samples;
  const Epoch first(spec.first_epoch);
  const Result<IndexOrder> order = (*samples)->order(first);
  if (!order) return order.error();
  FirstUses uses(sizes);
  std::vector<uint32_t> shards;
  std::vector<uint64_t> begins{0};
  for (uint32_t rank = 0; rank < spec.world; rank += spec.ranks_per_node) {
    std::vector<RankOrder> ranks;
    for (uint32_t i = 0; i < spec.ranks_per_node; ++i)
      ranks.emplace_back(*order, (*samples)->slice(first, TrainingRank(rank + i)));
    use_of_node(ranks, std::max<uint32_t>(spec.batch, 1), std::max<uint32_t>(spec.workers, 1), uses);
    const std::vector<uint32_t> of_node = uses.take();
    shards.insert(shards.end(), of_node.begin(), of_node.end());
    begins.push_back(shards.size());
  }
  return SamplerResult(std::make_unique<StreamingCopies>(spec, std::move(shards), std::move(begins)));
}

}  // namespace clairfs
