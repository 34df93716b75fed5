// clairfs: the placement that the daemons compute (plan/placement/placement_map.h), each sample read from the
// PFS once, by its home, in the order of the job's first use of it, and from there by whoever needs it; what
// has no home comes from the PFS every time. Room that is left holds copies of what a worker uses most, kept
// when it first gets them. Keeps the order.
//
// A read takes the source that is done first, waiting for the home included. The threads of all storage
// classes work through one queue of what the worker is home to: the daemon has one queue of fetches, and no
// threads of a class.
#include <algorithm>
#include <cerrno>
#include <memory>

#include "plan/placement/placement_map.h"
#include "plan/simulator/model/dataset.h"
#include "plan/simulator/policies/one_node_cache.h"
#include "plan/simulator/policies/policies.h"

namespace clairfs {
namespace {

constexpr size_t kTiers = 2;  // RAM and NVMe
// The time that the policy by next use takes grows with the square of the samples. Above, one node is placed
// like several, which keeps as many bytes: what is kept over the end of an epoch is at most what fits.
constexpr size_t kMostByNextUse = 100000;

// Number of the scenario's class that stands for the tier: the first is RAM, the second NVMe.
uint8_t storage_of(Tier tier) {
  return tier == Tier::ram ? 0 : 1;
}

NodeCapacity capacity_of(const Scenario& scenario) {
  NodeCapacity capacity;
  if (!scenario.classes.empty())
    capacity.ram = static_cast<uint64_t>(scenario.classes[0].capacity * kMegabyte);
  if (scenario.classes.size() == kTiers) {
    capacity.nvme = static_cast<uint64_t>(scenario.classes[1].capacity * kMegabyte);
  }
  return capacity;
}

Result<PlacementMap> place(const PolicyInput& input, const ScenarioDataset& dataset) {
  const uint32_t workers = input.scenario.workers;
  JobUses uses(dataset.catalog(), workers);
  for (uint32_t epoch = 0; epoch < std::min(input.order.epochs(), kPlacementEpochs); ++epoch) {
    const auto order = input.order.order(epoch);
    if (!order) return order.error();
    for (uint32_t w = 0; w < workers; ++w) {
      uses.add(node_sequence(input.order, *order, Epoch(epoch), w), dataset.index(), NodeId(w));
    }
  }
  uses.finish();
  const std::vector<NodeCapacity> capacities(workers, capacity_of(input.scenario));
  return PlacementMap::make(dataset.catalog(), std::move(uses), capacities);
}

uint32_t prefill_threads(const Scenario& scenario) {
  uint32_t threads = 0;
  for (const StorageClass& storage : scenario.classes) threads += storage.threads;
  return threads;
}

Strategy read_once() {
  Strategy strategy;
  strategy.reads_ahead = true;
  strategy.ahead_from_peers = true;
  strategy.single_read = true;
  return strategy;
}

Result<Strategy> on_one_node(const PolicyInput& input, std::unique_ptr<const ScenarioDataset> dataset) {
  auto job = JobOrder::make(input.scenario, input.sizes.size());
  if (!job) return job.error();
  const NodeCapacity capacity = capacity_of(input.scenario);
  Strategy strategy = read_once();
  strategy.holdings = OneNodeCache::empty_holdings(input.sizes.size());
  const auto cache = std::make_shared<OneNodeCache>(
      std::move(dataset), std::move(*job), TierSpace{capacity.ram, capacity.nvme, capacity.nvme > 0});
  strategy.on_pfs_read = [cache](Holdings& holdings, const PfsRead& read) {
    return cache->read_from_pfs(holdings, read);
  };
  return strategy;
}

}  // namespace

Result<Strategy> make_clairfs(const PolicyInput& input) {
  if (input.scenario.classes.size() > kTiers) {
    return Error{ENOTSUP, "clairfs has two tiers, RAM and NVMe; the scenario has more storage classes"};
  }
  auto dataset = ScenarioDataset::make(input.sizes);
  if (!dataset) return dataset.error();
  const bool by_next_use = input.scenario.workers == 1 && input.sizes.size() <= kMostByNextUse;
  if (by_next_use) return on_one_node(input, std::move(*dataset));
  const auto placement = place(input, **dataset);
  if (!placement) return placement.error();

  Strategy strategy = read_once();
  HoldingsBuilder holdings(input.sizes.size());
  for (uint32_t w = 0; w < input.scenario.workers; ++w) {
    FillQueue queue{w, prefill_threads(input.scenario), {}};
    const auto keep = [&](ChunkId chunk, bool on_use) {
      const uint32_t sample = (*dataset)->sample_of(chunk);
      const uint8_t storage = storage_of(placement->tier_at(NodeId(w), chunk));
      holdings.add(sample, Holding{kNotYet, static_cast<uint16_t>(w), storage, on_use});
      if (!on_use) queue.samples.push_back(sample);
    };
    for (const ChunkId chunk : placement->prefill_order(NodeId(w))) keep(chunk, false);
    for (const ChunkId chunk : placement->copies(NodeId(w))) keep(chunk, true);
    strategy.fills.push_back(std::move(queue));
  }
  strategy.holdings = holdings.build();
  return strategy;
}

}  // namespace clairfs
