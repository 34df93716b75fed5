#include "plan/simulator/engine/simulation.h"

#include <cerrno>

#include "plan/simulator/engine/engine.h"

namespace clairfs {

void Tally::add(const Tally& other, double weight) {
  compute += other.compute * weight;
  for (size_t source = 0; source < kSources; ++source) stall[source] += other.stall[source] * weight;
}

Result<Outcome> simulate(const Scenario& scenario, const std::vector<float>& sizes, const Policy& policy,
                         const SimulationProgress& progress) {
  auto job = JobOrder::make(scenario, sizes.size());
  if (!job) return job.error();
  const PerformanceModel model(scenario);
  Outcome outcome;
  outcome.policy = &policy;
  auto strategy = policy.make(PolicyInput{scenario, sizes, model, *job});
  if (!strategy) {
    if (strategy.error().code != ENOTSUP) return strategy.error();
    outcome.refusal = strategy.error().message;
    return outcome;
  }
  outcome.preparation = strategy->preparation;
  outcome.read_mb = strategy->prepared_mb;
  const SimulationInput input{scenario, sizes, model, *job, *strategy, progress};
  // Without stalls there is nothing to put in order.
  const bool by_worker = scenario.order == EvaluationOrder::by_worker || !strategy->stalls;
  const Status done = by_worker ? simulate_by_worker(input, outcome) : simulate_by_time(input, outcome);
  if (!done) return done.error();
  return outcome;
}

}  // namespace clairfs
