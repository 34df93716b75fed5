// tf.data: Dataset.shuffle(buffer_size, seed) and Dataset.list_files(shuffle=True, seed), which is a shuffle
// of the sorted names with a buffer for all of them.
// Source: tensorflow, core/kernels/data/shuffle_dataset_op.cc, random_seed_ops.cc,
// python/framework/random_seed.py (2.14).
#include <algorithm>

#include "plan/random/philox.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr uint64_t kLargestTfSeed = (uint64_t{1} << 31) - 1;  // seeds are taken modulo this number
constexpr uint64_t kDefaultGraphSeed = 87654321;              // with an op's seed and no global one

struct TfSeeds {
  uint64_t first = 0;
  uint64_t second = 0;
};

// Python's seed % (2^31 - 1).
uint64_t truncated_seed(const BigInteger& seed) {
  uint64_t rest = 0;
  for (size_t i = seed.magnitude().size(); i-- > 0;) {
    rest = ((rest << 32) | seed.magnitude()[i]) % kLargestTfSeed;
  }
  return seed.negative() && rest != 0 ? kLargestTfSeed - rest : rest;
}

// random_seed.get_seed() with an op's seed.
Result<TfSeeds> tf_seeds(const SamplerSpec& spec) {
  const Result<BigInteger> op = integer_seed(spec);
  if (!op) return op.error();
  TfSeeds seeds{kDefaultGraphSeed, truncated_seed(*op)};
  if (!spec.args.global_seed.empty()) {
    const Result<BigInteger> global = BigInteger::parse(spec.args.global_seed);
    if (!global) return bad_key("global_seed", global.error().message);
    seeds.first = truncated_seed(*global);
  }
  if (seeds.first == 0 && seeds.second == 0) seeds.second = kLargestTfSeed;
  return seeds;
}

// The samples base, base + step ... through a buffer of `slots`, appended to `order`.
void tf_shuffle(Philox random, uint64_t count, uint64_t slots, uint64_t base, uint64_t step,
                std::vector<uint32_t>& order) {
  slots = std::min(slots, count);
  std::vector<uint32_t> buffer(slots);
  for (uint64_t k = 0; k < slots; ++k) buffer[k] = static_cast<uint32_t>(base + k * step);
  uint64_t filled = slots;  // samples that have entered; sample k lies in slot k mod slots at first
  for (uint64_t start = 0; start < filled; ++start) {
    uint32_t& chosen = buffer[(start + random.next32() % (filled - start)) % slots];
    order.push_back(chosen);
    // The oldest slot is the one that becomes free.
    uint32_t& oldest = buffer[start % slots];
    chosen = oldest;
    if (filled < count) oldest = static_cast<uint32_t>(base + filled++ * step);
  }
}

// Each epoch is an iterator of its own. shuffle().repeat(), which the runtime fuses into one iterator, gives
// the same orders: there the next epoch enters the buffer early and is drawn from with its own seeds.
class TfShuffle : public Sampler {
 public:
  TfShuffle(const SamplerSpec& spec, uint64_t buffer_size, std::optional<TfSeeds> seeds)
      : Sampler(spec.world),
        n_(spec.n),
        buffer_size_(buffer_size == 0 ? spec.n : buffer_size),
        seeds_(seeds),
        first_epoch_(spec.first_epoch),
        reshuffle_(spec.args.reshuffle_each_iteration),
        shard_(spec.shard) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    if (shard_ == ShardPlace::none) return span_slice(0, n_);
    const RankSlice share = strided_slice(n_, world(), rank.value);
    if (shard_ == ShardPlace::after || !seeds_) return share;
    // order() has one rank's share after the other; the first ones may be longer by a sample.
    const uint64_t before = n_ / world() * rank.value + std::min<uint64_t>(rank.value, n_ % world());
    return span_slice(before, before + share.count);
  }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    if (!seeds_) return IndexOrder::identity(n_);
    const TfSeeds seeds = of_epoch(epoch);
    const Philox random(seeds.first, seeds.second);
    std::vector<uint32_t> order;
    order.reserve(n_);
    if (shard_ == ShardPlace::before) {
      for (uint32_t rank = 0; rank < world(); ++rank) {
        tf_shuffle(random, strided_slice(n_, world(), rank).count, buffer_size_, rank, world(), order);
      }
    } else {
      tf_shuffle(random, n_, buffer_size_, 0, 1, order);
    }
    return IndexOrder(std::move(order));
  }

  TfSeeds of_epoch(Epoch epoch) const {
    if (!reshuffle_) return *seeds_;
    Philox generator(seeds_->first, seeds_->second);
    // Drawn for each iterator that the process makes: a job that resumes begins with the first pair.
    generator.seek(uint64_t{epochs_since(first_epoch_, epoch)} * 2);
    const uint32_t first = generator.next32();
    return {first, generator.next32()};
  }

  const uint64_t n_;
  const uint64_t buffer_size_;          // samples
  const std::optional<TfSeeds> seeds_;  // none: not shuffled
  const uint32_t first_epoch_;
  const bool reshuffle_;
  const ShardPlace shard_;
};

SamplerResult make_tf(const SamplerSpec& spec, uint64_t buffer_size) {
  if (!spec.shuffle) return SamplerResult(std::make_unique<TfShuffle>(spec, buffer_size, std::nullopt));
  const Result<TfSeeds> seeds = tf_seeds(spec);
  if (!seeds) return seeds.error();
  return SamplerResult(std::make_unique<TfShuffle>(spec, buffer_size, *seeds));
}

}  // namespace

SamplerResult make_tf_shuffle(const SamplerSpec& spec) {
  return make_tf(spec, spec.args.buffer_size);
}

SamplerResult make_tf_list_files(const SamplerSpec& spec) {
  return make_tf(spec, 0);
}

}  // namespace clairfs
