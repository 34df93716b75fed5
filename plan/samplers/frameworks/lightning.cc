// PyTorch Lightning's and timm's variants of DistributedSampler.
// Source: Lightning-AI/pytorch-lightning, src/lightning/pytorch/trainer/connectors/data_connector.py,
// overrides/distributed.py (UnrepeatedDistributedSampler); huggingface/pytorch-image-models,
// timm/data/distributed_sampler.py (OrderedDistributedSampler).
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

// Trainer.predict(): neither a seed nor padding.
class LightningPredict : public Sampler {
 public:
  explicit LightningPredict(const SamplerSpec& spec)
      : Sampler(spec.world),
        n_(spec.n),
        shuffle_(spec.shuffle),
        set_epoch_(spec.set_epoch),
        torch_(spec.torch) {}

  RankSlice slice(Epoch, TrainingRank rank) const override { return strided_slice(n_, world(), rank.value); }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    if (!shuffle_) return IndexOrder::identity(n_);
    Result<std::vector<uint32_t>> order =
        seeded_randperm(BigInteger(set_epoch_ ? epoch.value : 0), n_, torch_);
    if (!order) return order.error();
    return IndexOrder(std::move(*order));
  }

  const uint64_t n_;
  const bool shuffle_;
  const bool set_epoch_;
  const TorchVersion torch_;
};

}  // namespace

SamplerResult make_lightning(const SamplerSpec& spec) {
  SamplerSpec distributed = spec;
  distributed.drop_last = false;                         // it is the loader's
  if (distributed.seed.empty()) distributed.seed = "0";  // PL_GLOBAL_SEED, which seed_everything() sets
  return make_torch_distributed(distributed);
}

SamplerResult make_lightning_predict(const SamplerSpec& spec) {
  return SamplerResult(std::make_unique<LightningPredict>(spec));
}

SamplerResult make_timm_ordered(const SamplerSpec& spec) {
  SamplerSpec distributed = spec;
  distributed.drop_last = false;  // it is the loader's
  distributed.seed = "0";
  distributed.shuffle = false;
  return make_torch_distributed(distributed);
}

}  // namespace clairfs
