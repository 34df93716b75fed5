// LBANN's data store: S. Jacobs et al., "Parallelizing Training of Deep Generative Models on Massive
// Scientific Datasets", CLUSTER 2019. Every sample is kept in the memory of one worker; the others get it
// from there. Keeps the order. Not possible when the dataset is larger than the workers' memory together.
//
// Dynamic: who reads a sample in the first epoch keeps it. Preloading: equal parts are loaded before the
// training.
#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "plan/simulator/policies/policies.h"
#include "plan/simulator/policies/preparation.h"

namespace clairfs {
namespace {

constexpr uint32_t kMemory = 0;

Status check_fits(const PolicyInput& input) {
  if (input.scenario.classes.empty()) return Error{ENOTSUP, "there is no storage class for the data store"};
  const double room = input.scenario.classes[kMemory].capacity * input.scenario.workers;
  const double dataset = dataset_mb(input);
  if (dataset <= room) return {};
  return Error{ENOTSUP,
               fmt::format("the dataset ({:.0f} MB) is larger than the memory of all workers ({:.0f} MB)",
                           dataset, room)};
}

Strategy data_store() {
  Strategy strategy;
  strategy.reads_ahead = true;
  strategy.ahead_from_peers = true;
  strategy.ahead_from_pfs = false;
  return strategy;
}

}  // namespace

Result<Strategy> make_lbann_dynamic(const PolicyInput& input) {
  const Status fits = check_fits(input);
  if (!fits) return fits.error();
  const auto order = input.order.order(0);
  if (!order) return order.error();
  Strategy strategy = data_store();
  HoldingsBuilder holdings(input.sizes.size());
  std::vector<bool> kept(input.sizes.size());
  for (uint32_t w = 0; w < input.scenario.workers; ++w) {
    FillQueue queue{w, input.scenario.classes[kMemory].threads, {}};
    const WorkerShare& share = input.order.share(w);
    double room = input.scenario.classes[kMemory].capacity;
    for (uint64_t k = 0; k < share.count(); ++k) {
      const uint32_t sample = share.sample(*order, k);
      if (kept[sample] || input.sizes[sample] > room) continue;
      kept[sample] = true;
      room -= input.sizes[sample];
      holdings.add(sample, Holding{kNotYet, static_cast<uint16_t>(w), kMemory});
      queue.samples.push_back(sample);
    }
    strategy.fills.push_back(std::move(queue));
  }
  strategy.holdings = holdings.build();
  return strategy;
}

Result<Strategy> make_lbann_preload(const PolicyInput& input) {
  const Status fits = check_fits(input);
  if (!fits) return fits.error();
  Strategy strategy = data_store();
  HoldingsBuilder holdings(input.sizes.size());
  for (uint32_t w = 0; w < input.scenario.workers; ++w) {
    const Shard shard =
        load_shard(input, w, kMemory, equal_part(input, w), equal_part(input, w + 1), holdings);
    strategy.preparation = std::max(strategy.preparation, shard.seconds);
    strategy.prepared_mb[size_t(Source::pfs)] += shard.mb;
  }
  strategy.holdings = holdings.build();
  return strategy;
}

}  // namespace clairfs
