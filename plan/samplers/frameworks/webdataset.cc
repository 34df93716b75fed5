// WebDataset's order of shards. A sample of the plan is a shard: samples are read front to back in it, and
// .shuffle() of samples stands behind the reads.
// Source: webdataset/webdataset, src/webdataset/{compat,shardlists,filters}.py (0.2 to 1.0): urls are dealt
// to nodes, then to workers, then each worker shuffles its own.
#include <algorithm>

#include "plan/random/python_random.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr uint64_t kInitial = 100;                 // shards that filters.shuffle() waits for at first
constexpr std::string_view kEnvironment = "str:";  // WDS_SEED is text, and seeds as text does

struct WebDatasetSeed {
  BigInteger number = BigInteger(0);
  std::string text = {};  // instead of the number, unless empty
};

/// filters._shuffle(): the buffer takes up two shards for each that leaves it until it is full.
std::vector<uint32_t> buffer_shuffle(PythonRandom random, const std::vector<uint32_t>& shards,
                                     uint64_t size) {
  const uint64_t initial = std::min(kInitial, size);
  std::vector<uint32_t> buffer;
  std::vector<uint32_t> order;
  order.reserve(shards.size());
  const auto pick = [&] {
    uint32_t& picked = buffer[random.below(static_cast<uint32_t>(buffer.size()))];
    order.push_back(picked);
    picked = buffer.back();
    buffer.pop_back();
  };
  for (size_t next = 0; next < shards.size();) {
    buffer.push_back(shards[next++]);
    if (buffer.size() < size && next < shards.size()) buffer.push_back(shards[next++]);
    if (buffer.size() >= initial) pick();
  }
  while (!buffer.empty()) pick();
  return order;
}

class WebDatasetShards : public Sampler {
 public:
  WebDatasetShards(const SamplerSpec& spec, std::optional<WebDatasetSeed> seed)
      : Sampler(spec.world),
        n_(spec.n),
        workers_(std::max<uint32_t>(spec.workers, 1)),
        buffer_size_(spec.shardshuffle.value_or(0)),
        // The epoch is counted in the process that shuffles: a worker that ends with it begins at 0 again,
        // and so does a job that is started again, whatever epoch it resumes.
        first_epoch_(spec.first_epoch),
        counts_epochs_(spec.detshuffle && (spec.workers == 0 || spec.persistent_workers)),
        seed_(std::move(seed)) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    const uint64_t before = n_ / world() * rank.value + std::min<uint64_t>(rank.value, n_ % world());
    return span_slice(before, before + strided_slice(n_, world(), rank.value).count);
  }

 private:
  /// One rank's shards after the other's.
  Result<IndexOrder> make_order(Epoch epoch) override {
    std::vector<uint32_t> order;
    order.reserve(n_);
    for (uint32_t rank = 0; rank < std::min<uint64_t>(world(), n_); ++rank) append_rank(rank, epoch, order);
    return IndexOrder(std::move(order));
  }

  /// Workers read a shard each at the same time, so theirs take turns.
  void append_rank(uint32_t rank, Epoch epoch, std::vector<uint32_t>& order) const {
    const uint64_t busy = std::min<uint64_t>(workers_, strided_slice(n_, world(), rank).count);
    std::vector<std::vector<uint32_t>> of_worker(busy);
    for (uint64_t shard = rank, k = 0; shard < n_; shard += world(), ++k) {
      of_worker[k % busy].push_back(static_cast<uint32_t>(shard));
    }
    for (std::vector<uint32_t>& shards : of_worker) {
      if (seed_) shards = buffer_shuffle(generator(epoch), shards, buffer_size_);
    }
    for (size_t turn = 0; turn < of_worker[0].size(); ++turn) {
      for (const std::vector<uint32_t>& shards : of_worker) {
        if (turn < shards.size()) order.push_back(shards[turn]);
      }
    }
  }

  PythonRandom generator(Epoch epoch) const {
    if (!seed_->text.empty()) return PythonRandom::from_string(seed_->text);
    return PythonRandom(seed_->number.plus(counts_epochs_ ? epochs_since(first_epoch_, epoch) : 0));
  }

  const uint64_t n_;
  const uint32_t workers_;
  const uint64_t buffer_size_;  // shards
  const uint32_t first_epoch_;
  const bool counts_epochs_;
  const std::optional<WebDatasetSeed> seed_;  // none: the shards are not shuffled
};

Result<WebDatasetSeed> shard_seed(const SamplerSpec& spec) {
  if (!spec.seed.starts_with(kEnvironment)) {
    Result<BigInteger> number = integer_seed(spec);
    if (!number) return number.error();
    return WebDatasetSeed{.number = std::move(*number)};
  }
  if (spec.detshuffle) return bad_key("seed", "detshuffle adds the epoch to it, so it must be a number");
  if (spec.seed.size() == kEnvironment.size())
    return bad_key("seed", "want the value of WDS_SEED after str:");
  return WebDatasetSeed{.text = spec.seed.substr(kEnvironment.size())};
}

}  // namespace

SamplerResult make_webdataset(const SamplerSpec& spec) {
  const Status keys = only_keys(spec, {"shuffle", "shardshuffle", "detshuffle", "persistent_workers"});
  if (!keys) return keys.error();
  if (spec.workers > spec.n) return bad_key("workers", "there are more of them than shards");
  if (!spec.shuffle || spec.shardshuffle.value_or(0) == 0) {
    if (spec.detshuffle) return bad_key("detshuffle", "it needs shardshuffle=NUMBER");
    return SamplerResult(std::make_unique<WebDatasetShards>(spec, std::nullopt));
  }
  const Result<WebDatasetSeed> seed = shard_seed(spec);
  if (!seed) return seed.error();
  return SamplerResult(std::make_unique<WebDatasetShards>(spec, *seed));
}

}  // namespace clairfs
