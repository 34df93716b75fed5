#include "plan/tracking/known_epochs.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace clairfs {
namespace {

// Epochs that lie apart: beyond all positions that a job comes to, and so far from each other that none
// reaches the next one (an epoch has less than 2^28 positions, and less than 2^32 of them are numbered).
constexpr int64_t kApart = int64_t{1} << 62;
constexpr int64_t kApartStep = int64_t{1} << 29;

// Samples whose numbers differ by no more are neighbours: those of the ranks of a node, which take turns.
constexpr int64_t kNeighbours = 16;

}  // namespace

int64_t KnownEpochs::add(std::shared_ptr<const SequencePositions> order, std::optional<uint64_t> begin) {
  const Epoch number = order->sequence().epoch();
  const uint32_t length = order->sequence().length();
  const int64_t apart = kApart + number.value * kApartStep;
  const int64_t there = begin ? static_cast<int64_t>(*begin) : apart;
  const auto [at, added] =
      epochs_.try_emplace(number, KnownEpoch{std::move(order), there, std::vector<bool>(length)});
  if (added || !begin) return 0;
  return there - std::exchange(at->second.begin, there);
}

const KnownEpoch* KnownEpochs::find(int64_t epoch) const {
  const auto at = epoch < 0 ? epochs_.end() : epochs_.find(Epoch(static_cast<uint32_t>(epoch)));
  return at == epochs_.end() ? nullptr : &at->second;
}

PlanPosition KnownEpochs::position_of(Epoch current, int64_t position) const {
  const KnownEpoch* const here = find(current);
  if (here == nullptr) return {current, 0};
  const Epoch next(current.value + 1);
  if (position >= here->end() && epochs_.contains(next)) {
    return {next, static_cast<uint32_t>(position - here->end())};
  }
  return {current, static_cast<uint32_t>(std::clamp<int64_t>(position - here->begin, 0, here->length()))};
}

std::optional<uint32_t> KnownEpochs::sample_at(PlanPosition place) const {
  const KnownEpoch* const epoch = find(place.epoch);
  if (epoch == nullptr || place.position >= epoch->length()) return std::nullopt;
  return epoch->sequence().sample_at(place.position);
}

bool KnownEpochs::have(std::span<const uint32_t> samples) const {
  return std::any_of(epochs_.begin(), epochs_.end(), [&](const auto& epoch) {
    return std::any_of(samples.begin(), samples.end(),
                       [&](uint32_t sample) { return !epoch.second.order->of(sample).empty(); });
  });
}

bool KnownEpochs::in_file_order(std::span<const uint32_t> samples) const {
  const auto goes_through = [samples](const KnownEpoch& epoch) {
    size_t uses = 0;
    size_t between = 0;
    for (const uint32_t sample : samples) {
      const auto is_near = [&](int64_t position) {
        if (position < 0 || position >= epoch.length()) return true;
        const uint32_t there = epoch.sequence().sample_at(static_cast<uint32_t>(position));
        return std::abs(int64_t{there} - sample) <= kNeighbours;
      };
      for (const int64_t position : epoch.order->of(sample)) {
        ++uses;
        between += is_near(position - 1) && is_near(position + 1) ? 1 : 0;
      }
    }
    return 2 * between > uses;
  };
  return std::any_of(epochs_.begin(), epochs_.end(),
                     [&](const auto& entry) { return goes_through(entry.second); });
}

std::optional<PlanPosition> KnownEpochs::nearest_use(uint32_t sample, PlanPosition to) const {
  const auto distance = [&](PlanPosition a) {
    return std::pair(std::abs(int64_t{a.epoch.value} - to.epoch.value),
                     std::abs(int64_t{a.position} - to.position));
  };
  std::optional<PlanPosition> nearest;
  for (const auto& [number, epoch] : epochs_) {
    for (const uint32_t position : epoch.order->of(sample)) {
      const PlanPosition use{number, position};
      if (!nearest || distance(use) < distance(*nearest)) nearest = use;
    }
  }
  return nearest;
}

bool KnownEpochs::seen(int64_t position) const {
  return std::any_of(epochs_.begin(), epochs_.end(), [&](const auto& entry) {
    const KnownEpoch& epoch = entry.second;
    return position >= epoch.begin && position < epoch.end() &&
           epoch.seen[static_cast<size_t>(position - epoch.begin)];
  });
}

int64_t KnownEpochs::unseen(int64_t from, int64_t end) const {
  int64_t count = 0;
  for (const auto& [number, epoch] : epochs_) {
    const int64_t last = std::min(end, epoch.end());
    for (int64_t at = std::max(from, epoch.begin); at < last; ++at)
      count += epoch.seen[static_cast<size_t>(at - epoch.begin)] ? 0 : 1;
  }
  return count;
}

void KnownEpochs::forget_seen() {
  for (auto& [number, epoch] : epochs_) std::fill(epoch.seen.begin(), epoch.seen.end(), false);
}

}  // namespace clairfs
