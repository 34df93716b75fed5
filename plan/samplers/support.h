// The common parts of the sampler families: checks of the spec, and samplers whose ranks all read the whole
// order.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/random/big_integer.h"
#include "plan/samplers/epoch_stream.h"
#include "plan/samplers/sampler.h"

namespace clairfs {

/// EINVAL: "key: text".
Error bad_key(std::string_view key, std::string_view text);

/// EINVAL when the dataset is too large for 32-bit indices.
Status check_size(std::string_view key, uint64_t n);

/// The seed of a sampler that takes one integer. Errors: EINVAL, also when it is missing.
Result<BigInteger> integer_seed(const SamplerSpec& spec);
/// The same, of a sampler whose library seeds itself with `usual`.
Result<BigInteger> integer_seed_or(const SamplerSpec& spec, uint64_t usual);
/// randperm(n, Generator(seed)). Errors: EINVAL when torch does not take the seed.
Result<std::vector<uint32_t>> seeded_randperm(const BigInteger& seed, uint64_t n, TorchVersion torch);

/// A DataLoader's share of an order of `count` samples: all of it, or whole batches with drop_last.
RankSlice loader_slice(const SamplerSpec& spec, uint64_t count);

/// Each batch of `batch` positions of an order of `count` is cut into runs of `run`, of which `rank` takes
/// its own; the last batch may be short and is left out with `drop_last`. REQUIRES: batch > 0.
RankSlice batch_slice(uint64_t count, uint64_t batch, uint64_t run, uint64_t rank, bool drop_last);

/// Positions [begin, end) of an order.
inline RankSlice span_slice(uint64_t begin, uint64_t end) {
  return RankSlice{.count = end - begin, .start = begin};
}

/// Every world-th position of an order of `count` from `rank` on, without padding.
RankSlice strided_slice(uint64_t count, uint64_t world, uint64_t rank);

/// A sampler that knows nothing of ranks: every training process reads `slice` of the same order.
class ReplicatedSampler : public Sampler {
 public:
  ReplicatedSampler(uint32_t world, RankSlice slice) : Sampler(world), slice_(slice) {}
  RankSlice slice(Epoch, TrainingRank) const override { return slice_; }

 private:
  const RankSlice slice_;
};

/// Replicated; one generator runs on from epoch to epoch.
template <class Generator>
class StreamSampler : public ReplicatedSampler {
 public:
  StreamSampler(uint32_t world, RankSlice slice, EpochStream<Generator> stream)
      : ReplicatedSampler(world, slice), stream_(std::move(stream)) {}

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    auto indices = stream_.order(epoch);
    if (!indices) return indices.error();
    return IndexOrder(*indices);
  }

  EpochStream<Generator> stream_;
};

/// Replicated; each epoch is a pure function of its number.
class IndependentSampler : public ReplicatedSampler {
 public:
  using Make = std::function<Result<IndexOrder>(Epoch)>;  ///< thread-safe

  IndependentSampler(uint32_t world, RankSlice slice, Make make)
      : ReplicatedSampler(world, slice), make_(std::move(make)) {}

 private:
  Result<IndexOrder> make_order(Epoch epoch) override { return make_(epoch); }

  const Make make_;
};

/// Epochs that a process which began with epoch `first` has had before `epoch`: what a library counts that
/// does not know of the job before. 0 for epochs before the first.
inline uint32_t epochs_since(uint32_t first, Epoch epoch) {
  return epoch.value > first ? epoch.value - first : 0;
}

/// 0, 1, ..., n - 1.
std::vector<uint32_t> ascending(uint64_t n);

}  // namespace clairfs
