// NoPFS / HDMLP: Dryden et al., SC'21, section 5.1; thesis, section 3.2.2. Every worker keeps the samples
// that it will read most often over the whole job, in the fastest class that has room, and reads them from
// the PFS into each class in the order of its own first use, while the training runs. Workers choose on their
// own: two may keep the same sample, and some may be kept by nobody. Keeps the order.
//
// The staging buffer is filled from own classes and the PFS, as in the published simulator; from other
// workers a sample comes only when it is late.
#include <algorithm>
#include <numeric>

#include "plan/simulator/policies/policies.h"

namespace clairfs {
namespace {

// Bytes for the counts of a group of workers; more groups mean that the orders are made more often.
constexpr uint64_t kCountMemory = uint64_t{512} << 20;

constexpr uint8_t kNoClass = UINT8_MAX;

class Chooser {
 public:
  explicit Chooser(const PolicyInput& input) : in_(input), holdings_(input.sizes.size()) {}

  Result<Strategy> choose() {
    const uint64_t samples = in_.sizes.size();
    const uint32_t workers = in_.scenario.workers;
    const auto group =
        static_cast<uint32_t>(std::clamp<uint64_t>(kCountMemory / (samples * sizeof(uint16_t)), 1, workers));
    for (uint32_t first = 0; first < workers; first += group) {
      const Status chosen = choose_for(first, std::min(group, workers - first));
      if (!chosen) return chosen.error();
    }
    strategy_.holdings = holdings_.build();
    strategy_.reads_ahead = true;
    return std::move(strategy_);
  }

 private:
  template <class Visit>
  Status for_each_use(uint32_t first, uint32_t count, Visit&& visit) {
    for (uint32_t epoch = 0; epoch < in_.order.epochs(); ++epoch) {
      const auto order = in_.order.order(epoch);
      if (!order) return order.error();
      for (uint32_t w = 0; w < count; ++w) {
        const WorkerShare& share = in_.order.share(first + w);
        for (uint64_t k = 0; k < share.count(); ++k) visit(w, share.sample(*order, k));
      }
    }
    return {};
  }

  Status choose_for(uint32_t first, uint32_t count) {
    const uint64_t samples = in_.sizes.size();
    std::vector<uint16_t> uses(samples * count);
    const Status counted = for_each_use(first, count, [&](uint32_t w, uint32_t sample) {
      uint16_t& number = uses[w * samples + sample];
      if (number < UINT16_MAX) ++number;
    });
    if (!counted) return counted;
    // From here on `uses` holds the class instead.
    for (uint32_t w = 0; w < count; ++w) assign_classes(std::span(uses).subspan(w * samples, samples));
    return queue_fills(first, count, uses);
  }

  // Replaces each number of uses by a class, or kNoClass.
  void assign_classes(std::span<uint16_t> uses) const {
    std::vector<uint32_t> by_uses(uses.size());
    std::iota(by_uses.begin(), by_uses.end(), 0);
    std::stable_sort(by_uses.begin(), by_uses.end(),
                     [&](uint32_t a, uint32_t b) { return uses[a] > uses[b]; });
    uint8_t storage = 0;
    double held = 0;
    for (const uint32_t sample : by_uses) {
      const double mb = in_.sizes[sample];
      const bool used = uses[sample] > 0;
      uses[sample] = kNoClass;
      while (storage < in_.scenario.classes.size() && held + mb > in_.scenario.classes[storage].capacity) {
        ++storage;
        held = 0;
      }
      if (!used || storage == in_.scenario.classes.size()) continue;
      held += mb;
      uses[sample] = storage;
    }
  }

  // Holdings and queues in the order of first use.
  Status queue_fills(uint32_t first, uint32_t count, std::vector<uint16_t>& classes) {
    const size_t per_worker = in_.scenario.classes.size();
    const size_t base = strategy_.fills.size();
    for (uint32_t w = 0; w < count; ++w) {
      for (const StorageClass& storage : in_.scenario.classes) {
        strategy_.fills.push_back({first + w, storage.threads, {}});
      }
    }
    return for_each_use(first, count, [&](uint32_t w, uint32_t sample) {
      uint16_t& storage = classes[w * in_.sizes.size() + sample];
      if (storage == kNoClass) return;
      strategy_.fills[base + w * per_worker + storage].samples.push_back(sample);
      holdings_.add(sample,
                    Holding{kNotYet, static_cast<uint16_t>(first + w), static_cast<uint8_t>(storage)});
      storage = kNoClass;
    });
  }

  const PolicyInput& in_;
  HoldingsBuilder holdings_;
  Strategy strategy_;
};

}  // namespace

Result<Strategy> make_nopfs(const PolicyInput& input) {
  return Chooser(input).choose();
}

}  // namespace clairfs
