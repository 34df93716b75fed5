// The common parts of the two ways of simulating. Internal to the simulator.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "plan/simulator/engine/simulation.h"
#include "plan/simulator/model/job_order.h"
#include "plan/simulator/model/performance_model.h"
#include "plan/simulator/policies/strategy.h"

namespace clairfs {

struct SimulationInput {
  const Scenario& scenario;
  const std::vector<float>& sizes;
  const PerformanceModel& model;
  JobOrder& job;
  Strategy& strategy;
  const SimulationProgress& progress;
};

/// Fill runtime, critical, mean, barrier, epoch_seconds, read_mb and delivered_mb of `outcome`.
Status simulate_by_worker(const SimulationInput& input, Outcome& outcome);
Status simulate_by_time(const SimulationInput& input, Outcome& outcome);

/// A worker's batch.
struct WorkerBatch {
  Tally tally;
  double end = 0;
};

/// Adds a batch that all workers have ended to `outcome`; returns when the last of them did.
double note_batch(std::span<const WorkerBatch> batch, Outcome& outcome);

/// A place in a worker's sequence.
struct Cursor {
  uint32_t epoch = 0;
  uint64_t k = 0;  ///< sample of the worker in the epoch

  auto operator<=>(const Cursor&) const = default;
  /// The next place; skips nothing.
  void advance(uint64_t count) {
    if (++k < count) return;
    k = 0;
    ++epoch;
  }
};

/// Where a read would come from, and how long it would take beside waiting for the sample to be there.
struct Option {
  Source source = Source::pfs;
  uint32_t holder = 0;      ///< worker that keeps it
  double available_at = 0;  ///< seconds since the start; infinite while its reading is not worked out
  double seconds = 0;       ///< fetch
};

/// The fastest copy that `worker` itself keeps and that is there by `ready_by`, which may be infinite; copies
/// that are kept on first use count only once they are there.
std::optional<Option> local_option(const SimulationInput& input, uint32_t worker, uint32_t sample,
                                   double ready_by);
/// The same of the other workers.
std::optional<Option> peer_option(const SimulationInput& input, uint32_t worker, uint32_t sample,
                                  double ready_by);
/// The one that is done first when it is begun at `now`, waiting included, an own one rather than another's;
/// nothing if neither own nor others' copies are there or on their way.
std::optional<Option> soonest_option(const SimulationInput& input, uint32_t worker, uint32_t sample,
                                     double now);

/// Notes that `worker` has `sample` at `time`: a copy that is kept on first use is there from then on.
void note_fetched(const SimulationInput& input, uint32_t worker, uint32_t sample, double time);

}  // namespace clairfs
