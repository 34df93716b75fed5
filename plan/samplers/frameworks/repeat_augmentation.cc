// Repeated augmentation (Hoffer et al., 2019): each sample comes several times an epoch, once on each of
// several ranks, and an epoch ends after about as many samples as the dataset has.
// Source: huggingface/pytorch-image-models, timm/data/distributed_sampler.py (RepeatAugSampler);
// pytorch/vision, references/classification/sampler.py (RASampler).
#include <algorithm>
#include <cmath>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

// Python's i // divisor for floats > 0: exact where the quotient in floating point is not.
uint64_t floor_quotient(double i, double divisor) {
  return static_cast<uint64_t>(std::round((i - std::fmod(i, divisor)) / divisor));
}

struct Repeats {
  double each = 3;        // times that a sample comes
  uint64_t selected = 0;  // samples of a rank in an epoch
  bool shuffle = true;
  bool set_epoch = true;
  BigInteger seed = BigInteger(0);
};

class RepeatAugmentation : public Sampler {
 public:
  RepeatAugmentation(const SamplerSpec& spec, Repeats repeats)
      : Sampler(spec.world), n_(spec.n), repeats_(std::move(repeats)), torch_(spec.torch) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    const auto of_each = static_cast<double>(n_) * repeats_.each / world();
    return RankSlice{.count = std::min(repeats_.selected, static_cast<uint64_t>(std::ceil(of_each))),
                     .start = rank.value,
                     .stride = world()};
  }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    std::vector<uint32_t> samples = ascending(n_);
    if (repeats_.shuffle) {
      Result<std::vector<uint32_t>> order =
          seeded_randperm(repeats_.seed.plus(repeats_.set_epoch ? epoch.value : 0), n_, torch_);
      if (!order) return order.error();
      samples = std::move(*order);
    }
    std::vector<uint32_t> repeated(static_cast<size_t>(std::ceil(static_cast<double>(n_) * repeats_.each)));
    for (size_t k = 0; k < repeated.size(); ++k) {
      repeated[k] = samples[floor_quotient(static_cast<double>(k), repeats_.each)];
    }
    return IndexOrder(std::move(repeated));
  }

  const uint64_t n_;
  const Repeats repeats_;
  const TorchVersion torch_;
};

SamplerResult make_repeating(const SamplerSpec& spec, Repeats repeats) {
  if (!(repeats.each >= 1 && repeats.each <= 64)) return bad_key("num_repeats", "want 1 to 64");
  const Status size =
      check_size("num_repeats", static_cast<uint64_t>(std::ceil(static_cast<double>(spec.n) * repeats.each)));
  if (!size) return size.error();
  repeats.shuffle = spec.shuffle;
  repeats.set_epoch = spec.set_epoch;
  return SamplerResult(std::make_unique<RepeatAugmentation>(spec, std::move(repeats)));
}

}  // namespace

SamplerResult make_timm_repeat_augmentation(const SamplerSpec& spec) {
  const uint64_t ratio = spec.args.selected_ratio == 0 ? spec.world : spec.args.selected_ratio;
  const uint64_t round = spec.args.selected_round;
  const uint64_t selected = round != 0 ? spec.n / round * round / ratio : (spec.n + ratio - 1) / ratio;
  return make_repeating(spec, {.each = spec.num_repeats, .selected = selected});  // timm knows no seed
}

SamplerResult make_torchvision_repeat_augmentation(const SamplerSpec& spec) {
  if (spec.num_repeats != std::floor(spec.num_repeats)) {
    return bad_key("num_repeats", "torchvision's sampler takes a whole number of repetitions");
  }
  const Result<BigInteger> seed = integer_seed_or(spec, 0);
  if (!seed) return seed.error();
  constexpr uint64_t kRound = 256;  // fixed in RASampler
  return make_repeating(
      spec, {.each = spec.num_repeats, .selected = spec.n / kRound * kRound / spec.world, .seed = *seed});
}

}  // namespace clairfs
