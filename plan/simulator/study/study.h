// The studies of `clairfs simulate`: policies over one scenario, or over all combinations of a sweep's
// values.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "plan/simulator/engine/simulation.h"
#include "plan/simulator/policies/policies.h"
#include "plan/simulator/scenario/scenario.h"

namespace clairfs {

/// One thing that is varied: what set_scenario_value() calls it, and its values as written.
struct SweepAxis {
  std::string name;
  std::vector<std::string> values;
};
/// "ram=0,10G,20G"; commas inside of {} separate no values. Errors: EINVAL with what would be right.
Result<SweepAxis> parse_sweep(std::string_view text);

/// One combination of values, and what came of the policies.
struct StudyPoint {
  std::vector<std::pair<std::string, std::string>> settings;  ///< by axis: name and value
  Scenario scenario;
  uint64_t samples = 0;
  double dataset_mb = 0;
  double lower_bound = 0;  ///< seconds
  std::vector<Outcome> outcomes;
};

/// How far a study is.
struct StudyProgress {
  double done = 0;  ///< 0 ..= 1
  std::string_view policy;
  size_t run = 0;  ///< counted from 1
  size_t runs = 0;
};

/// The points in the order of the axes, the last turning fastest. The lower bound is worked out whether or
/// not it is among the policies. Errors: EINVAL for a value that the scenario cannot take, errno of reading
/// sizes.
Result<std::vector<StudyPoint>> run_study(const Scenario& scenario,
                                          const std::vector<const Policy*>& policies,
                                          const std::vector<SweepAxis>& axes, Logger& log,
                                          const std::function<void(const StudyProgress&)>& progress = {});

}  // namespace clairfs
