#include "plan/simulator/policies/policies.h"

#include <algorithm>
#include <array>

namespace clairfs {
namespace {

constexpr std::array kPolicies = {
    Policy{"lower-bound", "Lower bound", true, make_lower_bound},
    Policy{"naive", "Naive", true, make_naive},
    Policy{"staging", "Staging buffer", true, make_staging},
    Policy{"deepio-ordered", "DeepIO (ordered)", true, make_deepio_ordered},
    Policy{"deepio-opportunistic", "DeepIO (opportunistic)", false, make_deepio_opportunistic},
    Policy{"parallel-staging", "Parallel staging", false, make_parallel_staging},
    Policy{"lbann-dynamic", "LBANN (dynamic)", true, make_lbann_dynamic},
    Policy{"lbann-preload", "LBANN (preloading)", true, make_lbann_preload},
    Policy{"locality-aware", "Locality-aware", false, make_locality_aware},
    Policy{"nopfs", "NoPFS", true, make_nopfs},
    Policy{"clairfs", "clairfs", true, make_clairfs},
};

}  // namespace

std::span<const Policy> all_policies() {
  return kPolicies;
}

const Policy* find_policy(std::string_view name) {
  const auto found = std::find_if(kPolicies.begin(), kPolicies.end(),
                                  [&](const Policy& policy) { return policy.name == name; });
  return found == kPolicies.end() ? nullptr : &*found;
}

std::string policy_names() {
  std::string names;
  for (const Policy& policy : kPolicies) names += (names.empty() ? "" : ", ") + std::string(policy.name);
  return names;
}

}  // namespace clairfs
