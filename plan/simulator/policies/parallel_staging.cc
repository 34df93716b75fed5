// Parallel data staging: T. Kurth et al., "Exascale Deep Learning for Climate Analytics", SC'18. Before the
// training each worker fills its largest storage class: first its own part of the dataset from the PFS, then
// from the other workers' parts as much as fits.
//
// Changes the order: every read takes a random sample that the worker has locally. Where the class is smaller
// than the dataset, a worker never sees the rest.
#include <algorithm>
#include <random>

#include "plan/simulator/policies/policies.h"
#include "plan/simulator/policies/preparation.h"
#include "plan/simulator/policies/thread_clocks.h"

namespace clairfs {
namespace {

// What a worker has: its own part, and those of the others up to `others_end`, by number.
struct Local {
  Shard own;
  uint32_t others_end = 0;

  uint32_t count() const {
    const uint32_t own_count = own.end - own.first;
    return others_end > own.first ? others_end : others_end + own_count;
  }
  // REQUIRES: at < count().
  uint32_t sample(uint32_t at) const {
    if (others_end > own.first) return at;
    const uint32_t own_count = own.end - own.first;
    return at < own_count ? own.first + at : at - own_count;
  }
};

// Copies what others have loaded, while there is room; returns the seconds that it takes.
double copy_from_others(const PolicyInput& input, uint32_t worker, uint32_t storage,
                        const std::vector<Shard>& parts, Local& local, double& copied_mb) {
  const StorageClass& target = input.scenario.classes[storage];
  ThreadClocks clocks(target.threads);
  double held = local.own.mb;
  for (const Shard& part : parts) {
    if (&part == &parts[worker]) continue;
    for (uint32_t sample = part.first; sample < part.end; ++sample) {
      const double mb = input.sizes[sample];
      if (held + mb > target.capacity) return clocks.last();
      held += mb;
      copied_mb += mb;
      clocks.work(input.model.fetch_peer(mb, storage) + input.model.fill(mb, storage));
      local.others_end = sample + 1;
    }
  }
  return clocks.last();
}

class LocalOnly {
 public:
  LocalOnly(const PolicyInput& input, std::vector<Local> locals)
      : seed_(input.scenario.seed), job_(input.order), locals_(std::move(locals)) {}

  void operator()(uint32_t epoch, EpochOrder& order) const {
    std::mt19937_64 random(seed_ + epoch);
    for (uint32_t w = 0; w < locals_.size(); ++w) {
      const RankSlice& slice = job_.share(w).slice;
      for (uint64_t k = 0; k < slice.count; ++k) {
        order[slice.position(k) % order.size()] =
            locals_[w].sample(static_cast<uint32_t>(random() % locals_[w].count()));
      }
    }
  }

 private:
  uint64_t seed_;
  const JobOrder& job_;
  std::vector<Local> locals_;
};

}  // namespace

Result<Strategy> make_parallel_staging(const PolicyInput& input) {
  if (input.scenario.classes.empty()) return Error{ENOTSUP, "there is no storage class to stage into"};
  if (input.scenario.distribution == Distribution::whole) {
    return Error{ENOTSUP, "every worker reads every sample of a batch, so there is nothing to choose"};
  }
  const uint32_t storage = largest_class(input.scenario);
  HoldingsBuilder unused(input.sizes.size());  // every read is of a local sample
  Strategy strategy;
  std::vector<Shard> parts;
  for (uint32_t w = 0; w < input.scenario.workers; ++w) {
    parts.push_back(load_shard(input, w, storage, equal_part(input, w), equal_part(input, w + 1), unused));
    if (parts.back().mb == 0) return Error{ENOTSUP, "no sample fits into a worker's storage class"};
    strategy.prepared_mb[size_t(Source::pfs)] += parts.back().mb;
  }
  std::vector<Local> locals;
  for (uint32_t w = 0; w < input.scenario.workers; ++w) {
    Local local{parts[w], 0};
    const double copying =
        copy_from_others(input, w, storage, parts, local, strategy.prepared_mb[size_t(Source::peer)]);
    strategy.preparation = std::max(strategy.preparation, parts[w].seconds + copying);
    locals.push_back(local);
  }
  strategy.everywhere = static_cast<uint8_t>(storage);
  strategy.reads_ahead = true;
  strategy.ahead_from_pfs = false;
  strategy.reorder = LocalOnly(input, std::move(locals));
  return strategy;
}

}  // namespace clairfs
