// DataLoader(shuffle=True): torch.utils.data.RandomSampler.
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"
#include "plan/samplers/torch_loader.h"

namespace clairfs {

SamplerResult make_torch_random(const SamplerSpec& spec) {
  if (spec.n == 0) return bad_key("n", "RandomSampler refuses an empty dataset");
  const uint64_t count = spec.num_samples.value_or(spec.n);
  if (count == 0) return bad_key("num_samples", "RandomSampler needs a positive number");
  const Status size = check_size("num_samples", count);
  if (!size) return size.error();
  constexpr TorchVersion kNumSamplesAlone{1, 11};
  if (spec.num_samples && !spec.replacement.value_or(false) && spec.torch < kNumSamplesAlone) {
    return bad_key("num_samples", "RandomSampler takes it without replacement since torch 1.11 only");
  }

  const TorchGeneratorUse use = torch_generator_use(spec, TorchGeneratorUse::loader);
  const RandomSamplerDraws draws({.n = spec.n,
                                  .count = count,
                                  .replacement = spec.replacement.value_or(false),
                                  .default_generator = use == TorchGeneratorUse::default_generator,
                                  .torch = spec.torch});
  const auto order = [draws](Mt19937& generator) {
    std::vector<uint32_t> indices = draws.order(generator);
    draws.finish(generator);
    return indices;
  };
  return make_torch_stream(spec, use, {count, order, [draws](Mt19937& generator) { draws.skip(generator); }});
}

}  // namespace clairfs
