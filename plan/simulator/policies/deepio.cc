// DeepIO: Y. Zhu et al., "Entropy-Aware I/O Pipelining for Large-Scale Deep Learning on HPC Systems", MASCOTS
// 2018. Before the training the workers load disjoint parts of the dataset into their memory (class 0 of the
// scenario's classes) and read from each other's.
//
// Ordered mode keeps the order: what is in no memory is read from the PFS when it is needed.
// Opportunistic mode changes it: each read takes a random sample that the worker or its neighbour has in
// memory, so that only loaded samples are ever used, and with repetitions. Full randomisation is lost.
#include <algorithm>
#include <random>

#include "plan/simulator/policies/policies.h"
#include "plan/simulator/policies/preparation.h"

namespace clairfs {
namespace {

constexpr uint32_t kMemoryClass = 0;

struct Loaded {
  Strategy strategy;
  std::vector<Shard> shards;  // by worker
};

Result<Loaded> load(const PolicyInput& input) {
  if (input.scenario.classes.empty()) return Error{ENOTSUP, "there is no storage class to load into"};
  const uint32_t workers = input.scenario.workers;
  const auto samples = static_cast<uint32_t>(input.sizes.size());
  // When not all of it fits, each worker loads as much as it can, from where the one before has stopped.
  const bool all_fits = dataset_mb(input) / workers <= input.scenario.classes[kMemoryClass].capacity;
  Loaded loaded;
  HoldingsBuilder holdings(samples);
  uint32_t next = 0;
  for (uint32_t w = 0; w < workers; ++w) {
    const uint32_t first = all_fits ? equal_part(input, w) : next;
    const uint32_t end = all_fits ? equal_part(input, w + 1) : samples;
    const Shard shard = load_shard(input, w, kMemoryClass, first, end, holdings);
    next = shard.end;
    loaded.strategy.preparation = std::max(loaded.strategy.preparation, shard.seconds);
    loaded.strategy.prepared_mb[size_t(Source::pfs)] += shard.mb;
    loaded.shards.push_back(shard);
  }
  loaded.strategy.holdings = holdings.build();
  loaded.strategy.reads_ahead = true;
  loaded.strategy.ahead_from_peers = true;
  loaded.strategy.ahead_from_pfs = false;
  return loaded;
}

// A random sample for each read: with equal chance the worker's own or one of its neighbour's.
class Opportunistic {
 public:
  Opportunistic(const PolicyInput& input, std::vector<Shard> shards)
      : seed_(input.scenario.seed), job_(input.order), shards_(std::move(shards)) {}

  void operator()(uint32_t epoch, EpochOrder& order) const {
    std::mt19937_64 random(seed_ + epoch);
    for (uint32_t w = 0; w < shards_.size(); ++w) {
      const RankSlice& slice = job_.share(w).slice;
      for (uint64_t k = 0; k < slice.count; ++k) {
        const uint32_t from = random() % 2 == 0 ? w : (w + 1) % static_cast<uint32_t>(shards_.size());
        const Shard& shard = shards_[from].end > shards_[from].first ? shards_[from] : shards_[0];
        order[slice.position(k) % order.size()] =
            shard.first + static_cast<uint32_t>(random() % (shard.end - shard.first));
      }
    }
  }

 private:
  uint64_t seed_;
  const JobOrder& job_;
  std::vector<Shard> shards_;
};

}  // namespace

Result<Strategy> make_deepio_ordered(const PolicyInput& input) {
  auto loaded = load(input);
  if (!loaded) return loaded.error();
  return std::move(loaded->strategy);
}

Result<Strategy> make_deepio_opportunistic(const PolicyInput& input) {
  if (input.scenario.distribution == Distribution::whole) {
    return Error{ENOTSUP, "every worker reads every sample of a batch, so there is nothing to choose"};
  }
  auto loaded = load(input);
  if (!loaded) return loaded.error();
  if (loaded->shards[0].mb == 0) return Error{ENOTSUP, "no sample fits into a worker's memory"};
  loaded->strategy.reorder = Opportunistic(input, std::move(loaded->shards));
  return std::move(loaded->strategy);
}

}  // namespace clairfs
