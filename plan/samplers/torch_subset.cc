// torch.utils.data.SubsetRandomSampler.
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"
#include "plan/samplers/torch_loader.h"

namespace clairfs {

SamplerResult make_torch_subset(const SamplerSpec& spec) {
  if (!spec.lists)
    return bad_key("list", "missing; torch.subset needs the indices of the subset (list=FILE)");
  if (spec.lists->count() != 1) {
    return bad_key("list", "torch.subset takes one list, not one per epoch");
  }
  Result<std::vector<uint32_t>> indices = spec.lists->read(0);
  if (!indices) return indices.error();
  const auto subset = std::make_shared<const std::vector<uint32_t>>(std::move(*indices));
  const auto order = [subset, torch = spec.torch](Mt19937& generator) {
    std::vector<uint32_t> positions(subset->size());
    torch_randperm(generator, positions, torch);
    for (uint32_t& position : positions) position = (*subset)[position];
    return positions;
  };
  const uint64_t draws = torch_randperm_draws(subset->size(), spec.torch);
  return make_torch_stream(
      spec, torch_generator_use(spec, TorchGeneratorUse::sampler),
      {subset->size(), order, [draws](Mt19937& generator) { generator.discard(draws); }});
}

}  // namespace clairfs
