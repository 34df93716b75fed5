// torch.utils.data.WeightedRandomSampler with replacement.
#include <cerrno>
#include <cmath>
#include <numeric>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"
#include "plan/samplers/torch_loader.h"

namespace clairfs {
namespace {

constexpr uint64_t kMaxWeights = 1 << 24;  // torch.multinomial: "number of categories cannot exceed 2^24"

Status check_weights(const SamplerSpec& spec) {
  if (spec.weights.empty()) return bad_key("weights", "missing; torch.weighted needs a weight per sample");
  if (spec.weights.size() > kMaxWeights) return bad_key("weights", "torch takes at most 2^24 of them");
  if (spec.n != 0 && spec.weights.size() > spec.n) {
    return bad_key("weights", "there are " + std::to_string(spec.weights.size()) + " for " +
                                  std::to_string(spec.n) + " samples");
  }
  for (const double weight : spec.weights) {
    if (!std::isfinite(weight) || weight < 0) return bad_key("weights", "a weight must be finite and >= 0");
  }
  const double total = std::accumulate(spec.weights.begin(), spec.weights.end(), 0.0);
  if (!std::isfinite(total) || total <= 0) return bad_key("weights", "their sum must be positive and finite");
  return {};
}

}  // namespace

SamplerResult make_torch_weighted(const SamplerSpec& spec) {
  const Status weights = check_weights(spec);
  if (!weights) return weights.error();
  const uint64_t count = spec.num_samples.value_or(spec.weights.size());
  if (!spec.replacement.value_or(true) || count == 1) {
    return Error{ENOTSUP,
                 std::string(count == 1 ? "num_samples" : "replacement") +
                     ": drawing one sample, or without replacement, depends on how torch's logarithm was "
                     "compiled and cannot be predicted; record the order and use sampler=list list=FILE"};
  }
  if (count == 0) return bad_key("num_samples", "WeightedRandomSampler needs a positive number");
  const Status size = check_size("num_samples", count);
  if (!size) return size.error();

  const auto multinomial = std::make_shared<const TorchMultinomial>(spec.weights);
  const auto order = [multinomial, count](Mt19937& generator) {
    std::vector<uint32_t> indices(count);
    for (uint32_t& index : indices) index = multinomial->draw(generator);
    return indices;
  };
  return make_torch_stream(spec, torch_generator_use(spec, TorchGeneratorUse::sampler),
                           {count, order, [count](Mt19937& generator) { generator.discard(2 * count); }});
}

}  // namespace clairfs
