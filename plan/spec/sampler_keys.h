// The keys of a plan that its sampler sees.
#pragma once

#include <cstdint>

#include "cache/base/result.h"
#include "plan/samplers/sampler_spec.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// The sampler's part of a checked and resolved plan, over `n` samples. Keys that the plan leaves out stay
/// unset, so the sampler's own defaults hold. Files are not read here: lists and weights are empty.
SamplerSpec sampler_spec(const PlanSpec& plan, uint32_t n);

/// A key without effect is a misunderstanding. Errors: EINVAL naming a key that the plan gives, and that
/// other samplers take but not its own.
Status check_sampler_keys(const PlanSpec& plan);

}  // namespace clairfs
