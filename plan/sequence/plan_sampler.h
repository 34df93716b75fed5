// From a plan to its sampler.
#pragma once

#include <memory>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/samplers/sampler.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// The sampler that a resolved plan asks for over `n` samples; reads its list, weights or indices. `index`
/// gives a list of paths its meaning and may be null where there is no dataset; `source` is only used with
/// it, and for where relative list paths start. Errors: EINVAL with the key and what would be right, or errno
/// of a list file.
Result<std::unique_ptr<Sampler>> make_plan_sampler(const PlanSpec& spec, uint32_t n,
                                                   const DatasetSource& source, const SampleIndex* index);

}  // namespace clairfs
