// Grain's IndexSampler: contiguous shards, each shuffled by itself with index_shuffle.
// Source: google/grain, grain/_src/python/experimental/index_shuffle/index_shuffle.cc (a Simon-like Feistel
// cipher that walks its cycle until it is in range), dataset/transformations/shuffle.py, core/sharding.py.
#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr size_t kRounds = 4;

// A permutation of 0 ... max_index without memory. Immutable, thread-safe.
class GrainShuffle {
 public:
  // REQUIRES: max_index > 0.
  GrainShuffle(uint32_t max_index, uint32_t seed)
      : max_index_(max_index), half_(half_bits(max_index)), mask_((uint32_t{1} << half_) - 1) {
    std::seed_seq sequence{seed};
    sequence.generate(keys_.begin(), keys_.end());
  }

  uint32_t operator[](uint32_t index) const {
    uint64_t value = index;
    do {
      value = encrypted(value);
    } while (value > max_index_);
    return static_cast<uint32_t>(value);
  }

 private:
  // A block has an even number of bits, at least 16. It is made for max_index values and not for one more:
  // where max_index is 2^16, 2^18 ... the last index is shuffled like the first, as upstream does.
  static uint32_t half_bits(uint32_t max_index) {
    const auto bits = static_cast<uint32_t>(std::bit_width(max_index - 1));
    return std::max((bits + 1) / 2, 8U);
  }

  uint32_t rotated(uint32_t x, uint32_t by) const { return ((x << by) | (x >> (half_ - by))) & mask_; }
  uint32_t mixed(uint32_t x) const { return (rotated(x, 1) & rotated(x, 8)) ^ rotated(x, 2); }

  uint64_t encrypted(uint64_t value) const {
    uint32_t left = static_cast<uint32_t>(value >> half_) & mask_;
    uint32_t right = static_cast<uint32_t>(value) & mask_;
    for (size_t round = 0; round < kRounds; round += 2) {
      left ^= mixed(right) ^ (keys_[round] & mask_);
      right ^= mixed(left) ^ (keys_[round + 1] & mask_);
    }
    return (uint64_t{left} << half_) | right;
  }

  const uint32_t max_index_;
  const uint32_t half_;  // bits
  const uint32_t mask_;
  std::array<uint32_t, kRounds> keys_{};
};

class Grain : public Sampler {
 public:
  Grain(const SamplerSpec& spec, uint32_t seed)
      : Sampler(spec.world), n_(spec.n), seed_(seed), shuffle_(spec.shuffle), drop_(spec.drop_last) {}

  // even_split(): the first shards have one sample more than the others, unless the remainder is dropped.
  RankSlice slice(Epoch, TrainingRank rank) const override {
    const uint64_t each = n_ / world();
    const uint64_t more = drop_ ? 0 : n_ % world();
    const auto start = [&](uint64_t shard) { return each * shard + std::min(shard, more); };
    return span_slice(start(rank.value), start(uint64_t{rank.value} + 1));
  }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    if (!shuffle_) return IndexOrder::identity(n_);
    const uint32_t seed = seed_ + epoch.value;  // modulo 2^32, as upstream
    std::vector<uint32_t> order = ascending(n_);
    for (uint32_t rank = 0; rank < world(); ++rank) {
      const RankSlice shard = slice(epoch, TrainingRank(rank));
      if (shard.count < 2) continue;
      const GrainShuffle shuffle(static_cast<uint32_t>(shard.count - 1), seed);
      for (uint64_t k = 0; k < shard.count; ++k) {
        order[shard.start + k] = static_cast<uint32_t>(shard.start) + shuffle[static_cast<uint32_t>(k)];
      }
    }
    return IndexOrder(std::move(order));
  }

  const uint64_t n_;
  const uint32_t seed_;
  const bool shuffle_;
  const bool drop_;  // the remainder that does not divide among the shards
};

}  // namespace

SamplerResult make_grain(const SamplerSpec& spec) {
  if (!spec.shuffle) return SamplerResult(std::make_unique<Grain>(spec, 0));
  const Result<BigInteger> seed = integer_seed(spec);
  if (!seed) return seed.error();
  if (seed->negative() || seed->magnitude().size() > 1) {
    return bad_key("seed", "Grain takes integers from 0 to 2^32 - 1");
  }
  return SamplerResult(std::make_unique<Grain>(spec, seed->magnitude()[0]));
}

}  // namespace clairfs
