// DataLoader(shuffle=False): torch.utils.data.SequentialSampler.
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {

SamplerResult make_torch_sequential(const SamplerSpec& spec) {
  const Status keys = only_keys(spec, {"drop_last", "persistent_workers", "shuffle", "torch"});
  if (!keys) return keys.error();
  return SamplerResult(std::make_unique<IndependentSampler>(
      spec.world, loader_slice(spec, spec.n),
      [n = spec.n](Epoch) { return Result<IndexOrder>(IndexOrder::identity(n)); }));
}

}  // namespace clairfs
