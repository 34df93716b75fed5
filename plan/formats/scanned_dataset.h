// A directory as a dataset, without a mount.
#pragma once

#include <string>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "plan/formats/dataset.h"

namespace clairfs {

/// Scans the directory `root`, which takes as long as listing it does; headers and indexes are read from
/// there. `log` outlives the result. Errors: errno of the scan.
Result<DatasetSource> scan_dataset(const std::string& root, Logger& log);

}  // namespace clairfs
