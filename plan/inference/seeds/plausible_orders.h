// The orders that torch's samplers draw with a seed of their own: all seeds that people are likely to give.
//
// DistributedSampler(seed=) and DataLoader(shuffle=True, generator=) shuffle with a generator that was seeded
// for it, so that seed_search.h tries a million seeds in a moment. Other libraries settle the first sample
// last, or draw it from all of the generator's state: their seeds are tried one by one
// (search/candidates.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/inference/seeds/seed_search.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

struct PlausibleOrders {
  std::vector<PlanSpec> orders;  ///< without the dataset; one of each sampler at most
  uint64_t tested = 0;           ///< seeds
  double core_seconds = 0;       ///< used
};

/// Those of the seeds before `how.end` whose first epoch explains the opens, with the certainty of
/// seed_search.h. `first_seen`: samples of `n` in the order of their first opens. A job's ranks are found
/// where rank 0 is among those that were seen. Blocks as search_seeds() does; `how.core_seconds` are for
/// both.
PlausibleOrders plausible_orders(uint64_t n, std::span<const uint32_t> first_seen,
                                 const SeedSearchOptions& how);

}  // namespace clairfs
