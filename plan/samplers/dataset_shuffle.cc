// Dataset.shuffle(seed) of Hugging Face datasets, under any sampler: one permutation for all epochs.
// Source: huggingface/datasets, src/datasets/arrow_dataset.py: default_rng(seed).permutation(len(self)).
#include "plan/random/numpy_shuffle.h"
#include "plan/random/pcg64.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

// What the sampler calls sample i is sample permutation[i]. Memory: 4 bytes a sample, and those of an epoch.
class ShuffledDataset : public Sampler {
 public:
  ShuffledDataset(std::unique_ptr<Sampler> inner, std::vector<uint32_t> permutation)
      : Sampler(inner->world()), inner_(std::move(inner)), permutation_(std::move(permutation)) {}

  std::optional<uint32_t> epoch_count() const override { return inner_->epoch_count(); }
  RankSlice slice(Epoch epoch, TrainingRank rank) const override { return inner_->slice(epoch, rank); }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    const Result<IndexOrder> order = inner_->order(epoch);
    if (!order) return order.error();
    std::vector<uint32_t> samples(order->size());
    for (uint64_t k = 0; k < samples.size(); ++k) samples[k] = permutation_[(*order)[k]];
    return IndexOrder(std::move(samples));
  }

  const std::unique_ptr<Sampler> inner_;
  const std::vector<uint32_t> permutation_;
};

}  // namespace

SamplerResult make_dataset_shuffle(const SamplerSpec& spec, std::unique_ptr<Sampler> inner) {
  const Result<BigInteger> seed = BigInteger::parse(spec.dataset_shuffle);
  if (!seed) return bad_key("dataset_shuffle", seed.error().message);
  if (seed->negative()) return bad_key("dataset_shuffle", "numpy.random.default_rng takes integers >= 0");
  Pcg64 generator(SeedSequence(std::vector{*seed}));
  std::vector<uint32_t> permutation = ascending(spec.n);
  numpy_shuffle(generator, permutation);
  return SamplerResult(std::make_unique<ShuffledDataset>(std::move(inner), std::move(permutation)));
}

}  // namespace clairfs
