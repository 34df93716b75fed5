// The sizes of a scenario's samples.
#pragma once

#include <vector>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "plan/simulator/scenario/scenario.h"

namespace clairfs {

/// MB, by sample. Drawn with the scenario's seed, or those of the regular files of a directory (which is
/// scanned, in the order of the catalog) or of a saved catalog, or of the records in files of a directory.
/// Four bytes a sample. Errors: EINVAL when there is no file or what a plan would be refused for, errno of
/// the scan.
Result<std::vector<float>> make_sample_sizes(const Scenario& scenario, Logger& log);

}  // namespace clairfs
