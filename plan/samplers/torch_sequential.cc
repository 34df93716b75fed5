// DataLoader(shuffle=False): torch.utils.data.SequentialSampler.
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {

SamplerResult make_torch_sequential(const SamplerSpec& spec) {
  return SamplerResult(std::make_unique<IndependentSampler>(
      spec.world, loader_slice(spec, spec.n),
      [n = spec.n](Epoch) { return Result<IndexOrder>(IndexOrder::identity(n)); }));
}

}  // namespace clairfs
