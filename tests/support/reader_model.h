// A training job on one node and the page cache below it, as far as a tracker sees them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "plan/sequence/access_sequence.h"
#include "plan/sequence/plan_sampler.h"
#include "plan/sequence/sequence_positions.h"
#include "plan/tracking/tracker.h"

namespace clairfs {

/// The sequences of a plan over n numbered samples. Throws what is wrong with the plan.
inline AccessSequence plan_over(uint32_t n, const std::string& text, uint32_t nodes = 1) {
  auto spec = parse_plan(text);
  if (spec) spec = resolve_plan(std::move(*spec), nodes);
  if (!spec) throw std::runtime_error(spec.error().message);
  auto sampler = make_plan_sampler(*spec, n, DatasetSource(), nullptr);
  if (!sampler) throw std::runtime_error(sampler.error().message);
  auto made = AccessSequence::make(std::move(*spec), std::move(*sampler));
  if (!made) throw std::runtime_error(made.error().message);
  return std::move(*made);
}

using Samples = std::vector<uint32_t>;

/// Node 0's samples of an epoch in their order. Throws what is wrong with the epoch.
inline Samples order_of(AccessSequence& plan, uint32_t epoch) {
  const auto made = plan.sequence(Epoch(epoch), NodeId(0));
  if (!made) throw std::runtime_error(made.error().message);
  return {made->samples().begin(), made->samples().end()};
}

/// In which order the workers of all ranks open the samples of a node's sequence: positions, given that each
/// rank has `batch` of them a step, that ranks wait for each other after each step, and that everything else
/// is chance. W workers a rank keep prefetch * W batches in flight; without workers a rank opens by itself.
class LoaderModel {
 public:
  struct Loader {
    uint32_t ranks = 1;
    uint32_t batch = 1;
    uint32_t workers = 0;
    uint32_t prefetch = 2;
  };

  LoaderModel(uint32_t length, Loader loader, std::mt19937& random)
      : length_(length),
        loader_(loader),
        random_(random),
        lanes_(loader.ranks * std::max(loader.workers, 1U)) {
    const uint32_t first = std::max(loader.workers * loader.prefetch, 1U);
    for (uint32_t batch = 0; batch < first; ++batch) hand_out(batch);
    opened_.resize(length);
  }

  /// Calls `open(position)` for each open in the order of time until it returns false.
  void run(const std::function<bool(uint32_t)>& open) {
    uint32_t left = length_;
    while (left > 0) {
      std::vector<size_t> ready;
      for (size_t lane = 0; lane < lanes_.size(); ++lane) {
        if (!lanes_[lane].empty()) ready.push_back(lane);
      }
      // The main processes take a batch now and then, and when nothing else can go on.
      if (ready.empty() || random_() % (2 * loader_.batch) == 0 || loader_.workers == 0) take_batches();
      if (ready.empty()) continue;
      std::deque<uint32_t>& lane = lanes_[ready[random_() % ready.size()]];
      const uint32_t position = lane.front();
      lane.pop_front();
      opened_[position] = true;
      --left;
      while (prefix_ < length_ && opened_[prefix_]) ++prefix_;
      if (!open(position)) return;
    }
  }

  /// Everything below was opened.
  uint32_t prefix() const { return prefix_; }

 private:
  uint32_t step() const { return loader_.ranks * loader_.batch; }

  void hand_out(uint32_t batch) {
    for (uint32_t k = 0; k < step(); ++k) {
      const uint64_t position = uint64_t{batch} * step() + k;
      if (position >= length_) return;
      const uint32_t rank = k % loader_.ranks;
      const uint32_t worker = loader_.workers == 0 ? 0 : batch % loader_.workers;
      lanes_[rank * std::max(loader_.workers, 1U) + worker].push_back(static_cast<uint32_t>(position));
    }
  }

  void take_batches() {
    while (uint64_t{taken_} * step() < length_ &&
           prefix_ >= std::min<uint64_t>(uint64_t{taken_ + 1} * step(), length_)) {
      hand_out(taken_ + std::max(loader_.workers * loader_.prefetch, 1U));
      ++taken_;
      if (random_() % 2 == 0) return;
    }
  }

  const uint32_t length_;
  const Loader loader_;
  std::mt19937& random_;
  std::vector<std::deque<uint32_t>> lanes_;  ///< positions to open, by rank and worker
  std::vector<bool> opened_;
  uint32_t prefix_ = 0;
  uint32_t taken_ = 0;
};

/// A mount with one plan: a stager that pushes `window` positions ahead of the tracker's high-water mark and
/// drops what is below its position. Reads of pushed samples are not seen, unless they are sentinels.
class MountModel {
 public:
  struct Sight {
    bool opens = false;     ///< every open is seen
    uint32_t gap = 64;      ///< one sentinel in so many samples
    uint32_t window = 600;  ///< positions; 0: nothing is pushed
  };

  MountModel(AccessSequence& plan, uint32_t samples, Sight sight, std::optional<Epoch> last = std::nullopt)
      : tracker(plan.reorder_window(), last), plan_(plan), sight_(sight), cached_(samples) {
    const auto first = static_cast<uint32_t>(plan.spec().first_epoch);
    add_epoch(first);
    if (plan.has_epoch(Epoch(first + 1))) add_epoch(first + 1);
    pushed_ = tracker.status().position;
    push();
  }

  void open(uint32_t sample) {
    ++opens;
    now += std::chrono::milliseconds(1);
    const bool read_seen = cached_[sample] != Cached::whole;
    cached_[sample] = Cached::whole;
    const std::array<uint32_t, 1> samples{sample};
    if (sight_.opens) tracker.observe(samples, Access::open, now);
    if (read_seen) tracker.observe(samples, Access::read, now);
    if (read_seen || sight_.opens) push();
  }

  void add_epoch(uint32_t epoch) {
    auto made = plan_.sequence(Epoch(epoch), NodeId(0));
    if (!made) throw std::runtime_error(made.error().message);
    auto sequence = std::make_shared<const EpochSequence>(std::move(*made));
    known_[Epoch(epoch)] = sequence;
    tracker.add_epoch(std::make_shared<const SequencePositions>(sequence), absolute({Epoch(epoch), 0}));
  }

  /// All epochs are as long.
  uint64_t absolute(PlanPosition place) const {
    const uint64_t epoch = place.epoch.value - plan_.spec().first_epoch;
    return epoch * known_.begin()->second->length() + place.position;
  }

  Tracker tracker;
  uint64_t opens = 0;
  TimePoint now{std::chrono::seconds(1)};

 private:
  enum class Cached : uint8_t { no, sentinel, whole };

  void push() {
    if (tracker.state() == TrackerState::suspended) return;
    const TrackerStatus status = tracker.status();
    const PlanPosition high_water = status.high_water;
    const PlanPosition safe = status.position;
    if (!known_.contains(Epoch(safe.epoch.value + 1)) && plan_.has_epoch(Epoch(safe.epoch.value + 1))) {
      add_epoch(safe.epoch.value + 1);
    }
    while (!known_.empty() && known_.begin()->first.value + 1 < safe.epoch.value) {
      tracker.drop_epoch(known_.begin()->first);
      known_.erase(known_.begin());
    }
    drop_up_to(safe);
    if (sight_.window == 0) return;
    if (pushed_ < high_water || pushed_.epoch.value > high_water.epoch.value + 1 ||
        distance(high_water, pushed_) > sight_.window + 10) {
      pushed_ = high_water;
    }
    for (uint64_t ahead = distance(high_water, pushed_); ahead < sight_.window; ++ahead) {
      auto at = known_.find(pushed_.epoch);
      if (at != known_.end() && pushed_.position >= at->second->length()) {
        at = known_.find(Epoch(pushed_.epoch.value + 1));
        if (at != known_.end()) pushed_ = {at->first, 0};
      }
      if (at == known_.end()) break;
      const EpochSequence& order = *at->second;
      const bool sentinel = pushed_.position % sight_.gap == 0 || pushed_.position + 1 == order.length();
      Cached& cached = cached_[order.sample_at(pushed_.position)];
      if (cached != Cached::sentinel) cached = sentinel ? Cached::sentinel : Cached::whole;
      ++pushed_.position;
    }
    tracker.set_pushed(absolute(pushed_), sight_.gap);
  }

  uint64_t distance(PlanPosition from, PlanPosition to) const {
    if (to <= from) return 0;
    const auto at = known_.find(from.epoch);
    const uint64_t before = from.epoch == to.epoch || at == known_.end() ? 0 : at->second->length();
    return before + to.position - from.position;
  }

  void drop_up_to(PlanPosition safe) {
    const auto drop = [&](Epoch epoch, uint32_t from, uint32_t to) {
      const auto at = known_.find(epoch);
      if (at == known_.end()) return;
      for (uint32_t p = from; p < std::min(to, at->second->length()); ++p) {
        cached_[at->second->sample_at(p)] = Cached::no;
      }
    };
    if (dropped_.epoch < safe.epoch) {
      drop(dropped_.epoch, dropped_.position, UINT32_MAX);
      dropped_ = {safe.epoch, 0};
    }
    if (dropped_ < safe) drop(safe.epoch, dropped_.position, safe.position);
    dropped_ = safe;
  }

  AccessSequence& plan_;
  const Sight sight_;
  std::vector<Cached> cached_;
  std::map<Epoch, std::shared_ptr<const EpochSequence>> known_;
  PlanPosition pushed_;
  PlanPosition dropped_;
};

}  // namespace clairfs
