#include "plan/simulator/policies/preparation.h"

#include <algorithm>
#include <numeric>

#include "plan/simulator/policies/thread_clocks.h"

namespace clairfs {

Shard load_shard(const PolicyInput& input, uint32_t worker, uint32_t storage, uint32_t first, uint32_t end,
                 HoldingsBuilder& holdings) {
  const StorageClass& target = input.scenario.classes[storage];
  ThreadClocks clocks(target.threads);
  const PfsLoad load = everybody_reads(input.scenario, target.threads);
  Shard shard{first, first, 0, 0};
  while (shard.end < end && shard.mb + input.sizes[shard.end] <= target.capacity) {
    const double mb = input.sizes[shard.end];
    clocks.work(input.model.fetch_pfs(mb, load) + input.model.fill(mb, storage));
    holdings.add(shard.end, Holding{0, static_cast<uint16_t>(worker), static_cast<uint8_t>(storage)});
    shard.mb += mb;
    ++shard.end;
  }
  shard.seconds = clocks.last();
  return shard;
}

uint32_t equal_part(const PolicyInput& input, uint32_t worker) {
  return static_cast<uint32_t>(input.sizes.size() * uint64_t{worker} / input.scenario.workers);
}

uint32_t largest_class(const Scenario& scenario) {
  const auto largest =
      std::max_element(scenario.classes.begin(), scenario.classes.end(),
                       [](const StorageClass& a, const StorageClass& b) { return a.capacity < b.capacity; });
  return static_cast<uint32_t>(largest - scenario.classes.begin());
}

double dataset_mb(const PolicyInput& input) {
  return std::accumulate(input.sizes.begin(), input.sizes.end(), 0.0);
}

}  // namespace clairfs
