// Loading before the training starts, as several policies do.
#pragma once

#include <cstdint>

#include "plan/simulator/policies/strategy.h"

namespace clairfs {

/// A run of samples that a worker has loaded.
struct Shard {
  uint32_t first = 0;
  uint32_t end = 0;    ///< one past the last
  double seconds = 0;  ///< that loading took
  double mb = 0;
};

/// `worker` reads samples from `first` on, up to `end` or to where the class is full, from the PFS into class
/// `storage`, with the class's threads and while all workers do the same (g = N). The copies are there at 0,
/// since the training starts after it.
Shard load_shard(const PolicyInput& input, uint32_t worker, uint32_t storage, uint32_t first, uint32_t end,
                 HoldingsBuilder& holdings);

/// Of F samples in N equal parts, the first of worker's part.
uint32_t equal_part(const PolicyInput& input, uint32_t worker);

/// The class with the greatest capacity. REQUIRES: there is one.
uint32_t largest_class(const Scenario& scenario);

/// MB of the whole dataset.
double dataset_mb(const PolicyInput& input);

}  // namespace clairfs
