// JobOrder tells which sample each worker reads when: the R of the papers, epoch by epoch.
//
// The order of an epoch is the sampler's (plan/samplers), and a worker takes its slice of it, so that a
// simulation reads exactly what a plan with that sampler and seed would.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "plan/samplers/sampler.h"
#include "plan/simulator/scenario/scenario.h"

namespace clairfs {

/// The samples of an epoch in the order that all workers share.
using EpochOrder = std::vector<uint32_t>;

/// The part of an epoch's order that a worker takes.
struct WorkerShare {
  RankSlice slice;
  uint64_t step = 1;  ///< samples of a batch that are the worker's

  uint64_t count() const { return slice.count; }
  /// REQUIRES: k < count().
  uint32_t sample(const EpochOrder& order, uint64_t k) const {
    const uint64_t position = slice.position(k);
    return order[position < order.size() ? position : position % order.size()];
  }
};

/// One thread at a time.
class JobOrder {
 public:
  /// `samples`: F. Errors: EINVAL naming the key of the scenario.
  static Result<JobOrder> make(const Scenario& scenario, uint64_t samples);

  uint32_t workers() const { return static_cast<uint32_t>(shares_.size()); }
  uint32_t epochs() const { return epochs_; }
  uint64_t samples() const { return samples_; }
  /// Batches of an epoch.
  uint64_t steps() const { return steps_; }
  const WorkerShare& share(uint32_t worker) const { return shares_[worker]; }
  /// Samples that all workers read in an epoch.
  uint64_t epoch_length() const;

  /// Every call makes it again; forward is cheap. Errors: as Sampler::order().
  Result<EpochOrder> order(uint32_t epoch);

 private:
  JobOrder() = default;

  uint32_t epochs_ = 0;
  uint64_t samples_ = 0;
  uint64_t steps_ = 0;
  std::vector<WorkerShare> shares_;
  std::unique_ptr<Sampler> sampler_;
};

/// Changes an epoch's order, as some policies do; empty for those that keep it.
using Reorder = std::function<void(uint32_t epoch, EpochOrder& order)>;

/// The orders of the epochs that are in use: made when the first worker gets to one, freed when the last has
/// left it. Four bytes a sample and epoch held. One thread at a time.
class OrderWindow {
 public:
  OrderWindow(JobOrder& job, Reorder reorder) : job_(job), reorder_(std::move(reorder)) {}

  /// REQUIRES: epoch < job.epochs(), and not released. Errors: as JobOrder::order().
  Result<const EpochOrder*> get(uint32_t epoch);
  /// No worker goes back before `epoch`.
  void release_before(uint32_t epoch);

 private:
  JobOrder& job_;
  Reorder reorder_;
  uint32_t first_ = 0;  // epoch of orders_.front()
  std::deque<std::unique_ptr<const EpochOrder>> orders_;
};

}  // namespace clairfs
