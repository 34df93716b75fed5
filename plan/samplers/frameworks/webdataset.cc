// WebDataset's order of shards. A sample of the plan is a shard: samples are read front to back in it, and
// .shuffle() of samples stands behind the reads.
// Source: webdataset/webdataset, src/webdataset/{compat,shardlists,filters}.py (0.2 to 1.0): WebDataset()
// deals urls to nodes, then to workers, then each worker shuffles its own. A DataPipeline may shuffle first,
// as that of mlfoundations/open_clip does, src/open_clip_train/data.py (detshuffle2 with a SharedEpoch), and
// as a SimpleShardList(urls, seed=) does to its whole list: then each worker takes its share of one order.
#include <algorithm>

#include "plan/random/python_random.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr uint64_t kUsualInitial = 100;            // shards that filters.shuffle() waits for at first
constexpr std::string_view kEnvironment = "str:";  // WDS_SEED is text, and seeds as text does

struct WebDatasetSeed {
  BigInteger number = BigInteger(0);
  std::string text = {};  // instead of the number, unless empty
};

// filters._shuffle(): the buffer takes up two shards for each that leaves it until it is full.
std::vector<uint32_t> buffer_shuffle(PythonRandom random, const std::vector<uint32_t>& shards, uint64_t size,
                                     uint64_t initial) {
  initial = std::min(initial, size);
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
        initial_(spec.args.initial == 0 ? kUsualInitial : spec.args.initial),
        whole_list_(spec.method.has_value()),
        shuffles_first_(whole_list_ || spec.shard == ShardPlace::after),
        first_epoch_(spec.first_epoch),
        counting_(counting_of(spec)),
        seed_(std::move(seed)) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    const uint64_t before = n_ / world() * rank.value + std::min<uint64_t>(rank.value, n_ % world());
    return span_slice(before, before + strided_slice(n_, world(), rank.value).count);
  }

 private:
  // The counter of epochs for detshuffle.
  enum class Counting {
    none,     // nobody, or a worker that ends with each of them
    process,  // the process that shuffles: a job that is started again begins at 0, whatever it resumes
    script,   // which tells the workers
  };

  static Counting counting_of(const SamplerSpec& spec) {
    if (!spec.args.detshuffle) return Counting::none;
    if (spec.shard == ShardPlace::after && spec.set_epoch) return Counting::script;
    return spec.workers == 0 || spec.args.persistent_workers ? Counting::process : Counting::none;
  }

  // One rank's shards after the other's.
  Result<IndexOrder> make_order(Epoch epoch) override {
    std::vector<uint32_t> order;
    order.reserve(n_);
    std::vector<uint32_t> list = ascending(n_);
    if (seed_ && shuffles_first_) list = shuffled(std::move(list), epoch);
    for (uint32_t rank = 0; rank < std::min<uint64_t>(world(), n_); ++rank)
      append_rank(rank, epoch, list, order);
    return IndexOrder(std::move(order));
  }

  // Workers read a shard each at the same time, so theirs take turns.
  void append_rank(uint32_t rank, Epoch epoch, const std::vector<uint32_t>& list,
                   std::vector<uint32_t>& order) const {
    const uint64_t busy = std::min<uint64_t>(workers_, strided_slice(n_, world(), rank).count);
    std::vector<std::vector<uint32_t>> of_worker(busy);
    for (uint64_t shard = rank, k = 0; shard < n_; shard += world(), ++k) {
      of_worker[k % busy].push_back(list[shard]);
    }
    for (std::vector<uint32_t>& shards : of_worker) {
      if (seed_ && !shuffles_first_) shards = shuffled(std::move(shards), epoch);
    }
    for (size_t turn = 0; turn < of_worker[0].size(); ++turn) {
      for (const std::vector<uint32_t>& shards : of_worker) {
        if (turn < shards.size()) order.push_back(shards[turn]);
      }
    }
  }

  std::vector<uint32_t> shuffled(std::vector<uint32_t> shards, Epoch epoch) const {
    PythonRandom random = generator(epoch);
    if (!whole_list_) return buffer_shuffle(random, shards, buffer_size_, initial_);
    random.shuffle(shards);
    return shards;
  }

  PythonRandom generator(Epoch epoch) const {
    if (!seed_->text.empty()) return PythonRandom::from_string(seed_->text);
    const uint32_t counted = counting_ == Counting::script    ? epoch.value
                             : counting_ == Counting::process ? epochs_since(first_epoch_, epoch)
                                                              : 0;
    return PythonRandom(seed_->number.plus(counted));
  }

  const uint64_t n_;
  const uint32_t workers_;
  const uint64_t buffer_size_;  // shards
  const uint64_t initial_;      // shards
  const bool whole_list_;       // is shuffled at once, without a buffer
  const bool shuffles_first_;   // and deals then
  const uint32_t first_epoch_;
  const Counting counting_;
  const std::optional<WebDatasetSeed> seed_;  // none: the shards are not shuffled
};

Result<WebDatasetSeed> shard_seed(const SamplerSpec& spec) {
  if (!spec.seed.starts_with(kEnvironment)) {
    Result<BigInteger> number = integer_seed(spec);
    if (!number) return number.error();
    return WebDatasetSeed{.number = std::move(*number)};
  }
  if (spec.args.detshuffle) return bad_key("seed", "detshuffle adds the epoch to it, so it must be a number");
  if (spec.seed.size() == kEnvironment.size())
    return bad_key("seed", "want the value of WDS_SEED after str:");
  return WebDatasetSeed{.text = spec.seed.substr(kEnvironment.size())};
}

// What only some pipelines have.
Status check_pipeline(const SamplerSpec& spec) {
  const bool buffer = spec.shuffle && spec.shardshuffle.value_or(0) != 0;
  if (spec.args.detshuffle && !buffer) return bad_key("detshuffle", "it needs shardshuffle=NUMBER");
  if (spec.args.initial != 0 && !buffer) return bad_key("initial", "it needs shardshuffle=NUMBER");
  if (!spec.set_epoch && !(spec.args.detshuffle && spec.shard == ShardPlace::after)) {
    return bad_key("set_epoch", "only detshuffle of the whole list (shard=after) may be told the epoch");
  }
  if (spec.method && (*spec.method != ShuffleMethod::shuffle || buffer)) {
    return bad_key("method", "want shuffle, for SimpleShardList(urls, seed=), and then no shardshuffle");
  }
  return {};
}

}  // namespace

SamplerResult make_webdataset(const SamplerSpec& spec) {
  const Status checked = check_pipeline(spec);
  if (!checked) return checked.error();
  if (spec.workers > spec.n) return bad_key("workers", "there are more of them than shards");
  if (!spec.shuffle || (spec.shardshuffle.value_or(0) == 0 && !spec.method)) {
    return SamplerResult(std::make_unique<WebDatasetShards>(spec, std::nullopt));
  }
  const Result<WebDatasetSeed> seed = shard_seed(spec);
  if (!seed) return seed.error();
  if (spec.args.detshuffle && spec.shard == ShardPlace::after && spec.set_epoch && seed->number.negative()) {
    return bad_key("seed", "below 0 each worker shuffles with a seed of its own, which cannot be predicted");
  }
  return SamplerResult(std::make_unique<WebDatasetShards>(spec, *seed));
}

}  // namespace clairfs
