// Orders that come one after the other out of one generator.
//
// The generator's state before an epoch is a checkpoint, so that an epoch can be made again without starting
// over. Checkpoints are thinned to every 2nd, 4th, ... epoch when they outgrow their budget; the state after
// the epoch made last is always kept, so that going forward never repeats work.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"

namespace clairfs {

/// `Generator` is copyable. Not thread-safe.
template <class Generator>
class EpochStream {
 public:
  using Indices = std::shared_ptr<const std::vector<uint32_t>>;
  /// Makes an epoch's order. `previous` is the order of the epoch before, or null in epoch 0 and in streams
  /// that are not cumulative.
  using Step = std::function<std::vector<uint32_t>(Generator&, Epoch, const Indices& previous)>;
  /// Moves the generator over an epoch without making its order.
  using Skip = std::function<void(Generator&, Epoch)>;

  /// Only the generator runs on from epoch to epoch. `skip` may be empty: then `step` is used.
  static EpochStream independent(uint64_t epoch_size, Generator start, Step step, Skip skip = {}) {
    return EpochStream(epoch_size, std::move(start), std::move(step), std::move(skip), false);
  }
  /// The order, too, goes from one epoch into the next.
  static EpochStream cumulative(uint64_t epoch_size, Generator start, Step step) {
    return EpochStream(epoch_size, std::move(start), std::move(step), {}, true);
  }

  /// Errors: ERANGE when getting there would take minutes.
  Result<Indices> order(Epoch wanted) {
    auto [at, state] = nearest(wanted.value);
    if (uint64_t{wanted.value} - at > kMaxSkip / (epoch_size_ + 1)) {
      return Error{ERANGE, "epoch: " + std::to_string(wanted.value) + " is too far ahead of epoch " +
                               std::to_string(at) + " for a generator that runs on from epoch to epoch"};
    }
    for (; at < wanted.value; ++at) {
      if (skip_) {
        skip_(state.generator, Epoch(at));
      } else {
        advance(state, Epoch(at));
      }
      keep(at + 1, state);
    }
    const Indices made = advance(state, wanted);
    if (wanted.value + 1 != 0) keep(wanted.value + 1, state);
    return made;
  }

 private:
  struct State {
    Generator generator;
    Indices previous;  // null unless cumulative
  };
  // A few hundred states of a Mersenne Twister, or the orders of three epochs of ImageNet.
  static constexpr uint64_t kCheckpointBytes = 16 << 20;
  static constexpr uint64_t kMaxSkip = 100'000'000'000;  // samples; several minutes

  EpochStream(uint64_t epoch_size, Generator start, Step step, Skip skip, bool cumulative)
      : epoch_size_(epoch_size),
        step_(std::move(step)),
        skip_(std::move(skip)),
        cumulative_(cumulative),
        last_{start, nullptr} {
    checkpoints_.emplace(0, State{std::move(start), nullptr});
  }

  std::pair<uint32_t, State> nearest(uint32_t wanted) const {
    const auto checkpoint = std::prev(checkpoints_.upper_bound(wanted));
    if (last_epoch_ <= wanted && last_epoch_ >= checkpoint->first) return {last_epoch_, last_};
    return *checkpoint;
  }

  Indices advance(State& state, Epoch epoch) {
    auto made = std::make_shared<const std::vector<uint32_t>>(step_(state.generator, epoch, state.previous));
    if (cumulative_) state.previous = made;
    return made;
  }

  void keep(uint32_t epoch, const State& state) {
    last_epoch_ = epoch;
    last_ = state;
    if (epoch % spacing_ != 0) return;
    checkpoints_.insert_or_assign(epoch, state);
    const uint64_t bytes = sizeof(State) + (cumulative_ ? epoch_size_ * sizeof(uint32_t) : 0);
    while (checkpoints_.size() > 1 && checkpoints_.size() * bytes > kCheckpointBytes) {
      spacing_ *= 2;
      std::erase_if(checkpoints_, [this](const auto& entry) { return entry.first % spacing_ != 0; });
    }
  }

  const uint64_t epoch_size_;  // samples
  const Step step_;
  const Skip skip_;
  const bool cumulative_;
  std::map<uint32_t, State> checkpoints_;  // state before the epoch; epoch 0 is always there
  uint64_t spacing_ = 1;                   // of checkpoints, in epochs
  uint32_t last_epoch_ = 0;
  State last_;
};

}  // namespace clairfs
