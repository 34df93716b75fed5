// One maker per sampler; make_sampler() has the table of their names.
//
// A maker checks the keys that its sampler knows and refuses the rest. To add a sampler: a file with its
// maker, a line here, a row in registry.cc.
#pragma once

#include <memory>

#include "plan/samplers/sampler.h"

namespace clairfs {

using SamplerResult = Result<std::unique_ptr<Sampler>>;

SamplerResult make_torch_distributed(const SamplerSpec& spec);
SamplerResult make_torch_random(const SamplerSpec& spec);
SamplerResult make_torch_sequential(const SamplerSpec& spec);
SamplerResult make_torch_subset(const SamplerSpec& spec);
SamplerResult make_torch_weighted(const SamplerSpec& spec);
SamplerResult make_numpy_default_rng(const SamplerSpec& spec);
SamplerResult make_numpy_legacy(const SamplerSpec& spec);
SamplerResult make_python_random(const SamplerSpec& spec);
SamplerResult make_nopfs(const SamplerSpec& spec);
SamplerResult make_dali(const SamplerSpec& spec);
SamplerResult make_list(const SamplerSpec& spec);

}  // namespace clairfs
