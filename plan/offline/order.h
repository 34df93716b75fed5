// The order that a plan means for one training rank, without a mount: what `clairfs plan order` prints.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "cache/base/types.h"
#include "plan/samplers/sampler.h"

namespace clairfs {

struct PlanOrderRequest {
  std::string
      plan;  ///< as parse_plan() takes it; `n` says how many samples there are, or `root` is a directory
  Epoch epoch;
  TrainingRank rank;
  /// The output for each sample besides its number; all but none need `root`.
  enum class Detail : uint8_t { none, path, ranges };
  Detail detail = Detail::none;
};

/// One sample of the order. `detail` is its path below `root`, or where its bytes are: "OFFSET LENGTH PATH",
/// as format=ranges takes it, more ranges of one sample parted by "\n+". False ends the walk.
using PlanOrderSink = std::function<bool(uint32_t sample, std::string_view detail)>;

/// Calls `sink` for each sample that the rank reads in that epoch, in the delivered order. With `root` the
/// directory is scanned, which takes as long as listing it does. The job is taken to run on one node. Errors:
/// EINVAL naming the key and what would be right, ERANGE for an epoch that the job does not have, errno of
/// the scan.
Status plan_order(const PlanOrderRequest& request, Logger& log, const PlanOrderSink& sink);

}  // namespace clairfs
