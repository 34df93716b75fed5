// The policies: how training data can be loaded. One function each, in policies/; a row in policies.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cache/base/result.h"
#include "plan/simulator/policies/strategy.h"

namespace clairfs {

struct Policy {
  std::string_view name;   ///< as options and outputs say it
  std::string_view title;  ///< for plots
  bool keeps_order;        ///< every worker reads the fully shuffled samples that the job says
  /// Errors: ENOTSUP where the policy cannot run the job, with the reason.
  Result<Strategy> (*make)(const PolicyInput& input);
};

/// In the order in which they are shown.
std::span<const Policy> all_policies();
/// Null if there is none.
const Policy* find_policy(std::string_view name);
/// "lower-bound, naive, ...".
std::string policy_names();

Result<Strategy> make_lower_bound(const PolicyInput& input);
Result<Strategy> make_naive(const PolicyInput& input);
Result<Strategy> make_staging(const PolicyInput& input);
Result<Strategy> make_deepio_ordered(const PolicyInput& input);
Result<Strategy> make_deepio_opportunistic(const PolicyInput& input);
Result<Strategy> make_parallel_staging(const PolicyInput& input);
Result<Strategy> make_lbann_dynamic(const PolicyInput& input);
Result<Strategy> make_lbann_preload(const PolicyInput& input);
Result<Strategy> make_locality_aware(const PolicyInput& input);
Result<Strategy> make_nopfs(const PolicyInput& input);
Result<Strategy> make_clairfs(const PolicyInput& input);

}  // namespace clairfs
