// A plan looked at without a mount: what `clairfs plan order` and `clairfs plan stats` stand on.
#pragma once

#include <memory>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/sequence/access_sequence.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

struct PlanPreview {
  DatasetSource source;                      ///< without a catalog unless the plan names a root
  std::shared_ptr<const SampleIndex> index;  ///< null unless the plan names a root
  uint32_t samples = 0;
  AccessSequence sequence;
};

/// `spec.root` is a directory here, which is scanned (that takes as long as listing it does); without one
/// `spec.n` says how many samples there are. `nodes` of the job, at least 1. `log` outlives the
/// preview. Errors: EINVAL naming the key
/// and what would be right; errno of the scan.
Result<PlanPreview> preview_plan(PlanSpec spec, uint32_t nodes, Logger& log);

}  // namespace clairfs
