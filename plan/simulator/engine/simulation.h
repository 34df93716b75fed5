// Runs a job under a policy: when does every worker get every sample?
//
// Each worker asks for its samples in order, computes, and waits for the others at the end of a batch. With a
// staging buffer its threads read ahead as far as there is room.
//
// computing: "per-sample", as in the equations, a worker computes a sample as soon as it has it, so that it
//   waits for the others of the batch less; "per-batch", as frameworks do it, once it has all of the batch
//   that is its.
//
// There are two ways to work the reads out:
//
// by-worker, as the published simulator does: within a batch one worker after the other. A read is worked out
//   when there is room for it in the staging buffer, possibly far ahead of the worker's clock, and g at a
//   time x is one more than the number of other workers for which a read of the PFS has been worked out that
//   starts at x or later. So g depends on the order of the workers: the one that is farthest ahead has the
//   PFS to itself. Reads that fill storage classes are taken to have g = N, and do not count. A sample that
//   comes late from the staging buffer is read a second time if that is faster.
// by-time: all reads in the order of time; g is the number of workers that have a read of the PFS under way.
//   A read's speed is fixed when it begins. A worker that needs a sample which is being read waits for that
//   read.
//
// Memory: the orders of the epochs that are in use, the holdings of the policy, and the staging buffers'
// entries.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "plan/simulator/policies/policies.h"

namespace clairfs {

/// Where the seconds of a batch went.
struct Tally {
  double compute = 0;
  BySource stall{};  ///< waiting for a sample, by where it came from

  double stalled() const { return stall[0] + stall[1] + stall[2]; }
  void add(const Tally& other, double weight = 1);
};

/// The result of one policy. Seconds; MB are sums over the workers.
struct Outcome {
  const Policy* policy = nullptr;
  std::string refusal;  ///< why it cannot run the job; then the rest is 0

  double runtime = 0;      ///< = preparation + critical.compute + critical.stalled()
  double preparation = 0;  ///< before the first batch
  Tally critical;          ///< of the worker that ended its batch last, batch by batch
  Tally mean;              ///< over the workers
  double barrier = 0;      ///< mean over the workers: waiting for the others at the end of a batch
  std::vector<double> epoch_seconds;

  BySource read_mb{};       ///< everything that was read from there, filling and preparing included
  BySource delivered_mb{};  ///< what the training consumed, by where it was read from last

  double stalled() const { return preparation + critical.stalled(); }
};

/// Batches done, of all; called after each batch.
using SimulationProgress = std::function<void(uint64_t done, uint64_t total)>;

/// Errors: those of making orders. A policy that cannot run the job is no error.
Result<Outcome> simulate(const Scenario& scenario, const std::vector<float>& sizes, const Policy& policy,
                         const SimulationProgress& progress = {});

}  // namespace clairfs
