// Locality-aware data loading: C. Yang and G. Cong, "Accelerating Data Loading in Deep Neural Network
// Training", HiPC 2019. Before the training each worker loads its part of the dataset, as much as fits into
// its largest storage class. The batches are kept, but the samples of a batch are dealt anew: a worker takes
// those that it has.
//
// Changes the order within a batch only: the gradient of a batch is the same, node-local batch normalisation
// is not.
#include <algorithm>

#include "plan/simulator/policies/policies.h"
#include "plan/simulator/policies/preparation.h"

namespace clairfs {
namespace {

// Deals each batch so that every worker keeps its number of samples, and has as many of its own as there
// are.
class Deal {
 public:
  Deal(const PolicyInput& input, std::vector<Shard> parts)
      : job_(input.order), parts_(std::move(parts)), own_(parts_.size()) {}

  void operator()(uint32_t, EpochOrder& order) {
    for (uint64_t step = 0; step < job_.steps(); ++step) deal(order, step);
  }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;

  uint32_t owner(uint32_t sample) const {
    const auto after = std::upper_bound(parts_.begin(), parts_.end(), sample,
                                        [](uint32_t value, const Shard& part) { return value < part.first; });
    if (after == parts_.begin()) return kNobody;
    const auto part = std::prev(after);
    return sample < part->end ? static_cast<uint32_t>(part - parts_.begin()) : kNobody;
  }

  template <class Visit>
  void for_each_place(const EpochOrder& order, uint64_t step, uint32_t worker, Visit&& visit) const {
    const WorkerShare& share = job_.share(worker);
    const uint64_t first = std::min(step * share.step, share.count());
    const uint64_t last = std::min(first + share.step, share.count());
    for (uint64_t k = first; k < last; ++k) visit(share.slice.position(k) % order.size());
  }

  void deal(EpochOrder& order, uint64_t step) {
    others_.clear();
    for (uint32_t w = 0; w < parts_.size(); ++w) {
      for_each_place(order, step, w, [&](uint64_t place) {
        const uint32_t holder = owner(order[place]);
        (holder == kNobody ? others_ : own_[holder]).push_back(order[place]);
      });
    }
    // First everybody's own, then what is left over goes to who has room.
    open_.clear();
    for (uint32_t w = 0; w < parts_.size(); ++w) {
      for_each_place(order, step, w, [&](uint64_t place) {
        if (own_[w].empty()) {
          open_.push_back(place);
        } else {
          order[place] = own_[w].back();
          own_[w].pop_back();
        }
      });
    }
    for (std::vector<uint32_t>& rest : own_) {
      others_.insert(others_.end(), rest.begin(), rest.end());
      rest.clear();
    }
    for (size_t at = 0; at < open_.size(); ++at) order[open_[at]] = others_[at];
  }

  const JobOrder& job_;
  std::vector<Shard> parts_;
  std::vector<std::vector<uint32_t>> own_;  // of the batch, by worker
  std::vector<uint32_t> others_;
  std::vector<uint64_t> open_;
};

}  // namespace

Result<Strategy> make_locality_aware(const PolicyInput& input) {
  if (input.scenario.classes.empty()) return Error{ENOTSUP, "there is no storage class to load into"};
  const uint32_t storage = largest_class(input.scenario);
  Strategy strategy;
  HoldingsBuilder holdings(input.sizes.size());
  std::vector<Shard> parts;
  for (uint32_t w = 0; w < input.scenario.workers; ++w) {
    parts.push_back(load_shard(input, w, storage, equal_part(input, w), equal_part(input, w + 1), holdings));
    strategy.preparation = std::max(strategy.preparation, parts.back().seconds);
    strategy.prepared_mb[size_t(Source::pfs)] += parts.back().mb;
  }
  strategy.holdings = holdings.build();
  strategy.reads_ahead = true;
  strategy.ahead_from_peers = true;
  // Where every worker reads the whole batch there is nothing to deal.
  if (input.scenario.distribution != Distribution::whole) strategy.reorder = Deal(input, std::move(parts));
  return strategy;
}

}  // namespace clairfs
