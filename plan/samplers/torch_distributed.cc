// torch.utils.data.DistributedSampler. Source: torch/utils/data/distributed.py (1.6 to 2.14).
#include <algorithm>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr TorchVersion kSeedKey{1, 6};
constexpr TorchVersion kDropLastKey{1, 7};
constexpr TorchVersion kCyclicPadding{1, 8};

class TorchDistributed : public Sampler {
 public:
  TorchDistributed(const SamplerSpec& spec, BigInteger seed)
      : Sampler(spec.world),
        n_(spec.n),
        seed_(std::move(seed)),
        shuffle_(spec.shuffle),
        set_epoch_(spec.set_epoch),
        torch_(spec.torch),
        count_(spec.drop_last ? n_ / world() : (n_ + world() - 1) / world()) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    return RankSlice{.count = count_, .start = rank.value, .stride = world()};
  }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    if (!shuffle_) return IndexOrder::identity(n_);
    const uint32_t number = set_epoch_ ? epoch.value : 0;
    Result<Mt19937> generator = torch_generator(seed_.plus(number));
    if (!generator)
      return bad_key("seed", "seed + epoch " + std::to_string(number) + ": " + generator.error().message);
    std::vector<uint32_t> order(n_);
    torch_randperm(*generator, order, torch_);
    return IndexOrder(std::move(order));
  }

  const uint64_t n_;
  const BigInteger seed_;
  const bool shuffle_;
  const bool set_epoch_;
  const TorchVersion torch_;
  const uint64_t count_;  // samples of each rank
};

}  // namespace

SamplerResult make_torch_distributed(const SamplerSpec& spec) {
  if (spec.torch < kSeedKey) return bad_key("torch", "DistributedSampler has a seed since 1.6 only");
  if (spec.drop_last && spec.torch < kDropLastKey) {
    return bad_key("drop_last", "DistributedSampler has it since torch 1.7 only");
  }
  const uint64_t padding = (spec.world - spec.n % spec.world) % spec.world;
  if (!spec.drop_last && padding > spec.n && spec.n != 0 && spec.torch < kCyclicPadding) {
    return bad_key("world", "torch before 1.8 fails when it has to pad by more samples than there are");
  }
  const Result<BigInteger> seed =
      spec.seed.empty() ? BigInteger(0) : integer_seed(spec);  // torch's default: 0
  if (!seed) return seed.error();
  const Result<Mt19937> generator = torch_generator(*seed);
  if (!generator) return bad_key("seed", generator.error().message);
  return SamplerResult(std::make_unique<TorchDistributed>(spec, *seed));
}

}  // namespace clairfs
