#include "plan/simulator/engine/engine.h"

#include <algorithm>
#include <cmath>

namespace clairfs {

double note_batch(std::span<const WorkerBatch> batch, Outcome& outcome) {
  const double share = 1.0 / static_cast<double>(batch.size());
  const auto last = std::max_element(
      batch.begin(), batch.end(), [](const WorkerBatch& a, const WorkerBatch& b) { return a.end < b.end; });
  outcome.critical.add(last->tally);
  for (const WorkerBatch& mine : batch) {
    outcome.mean.add(mine.tally, share);
    outcome.barrier += (last->end - mine.end) * share;
  }
  return last->end;
}

namespace {

bool counts(const Holding& copy, double ready_by) {
  return copy.available_at <= ready_by && !(copy.on_use && std::isinf(copy.available_at));
}

}  // namespace

std::optional<Option> local_option(const SimulationInput& input, uint32_t worker, uint32_t sample,
                                   double ready_by) {
  if (const auto storage = input.strategy.everywhere) {
    return Option{Source::local, worker, 0, input.model.fetch_local(input.sizes[sample], *storage)};
  }
  for (const Holding& copy : input.strategy.holdings.of(sample)) {  // fastest first
    if (copy.worker != worker || !counts(copy, ready_by)) continue;
    return Option{Source::local, copy.worker, copy.available_at,
                  input.model.fetch_local(input.sizes[sample], copy.storage)};
  }
  return std::nullopt;
}

std::optional<Option> peer_option(const SimulationInput& input, uint32_t worker, uint32_t sample,
                                  double ready_by) {
  for (const Holding& copy : input.strategy.holdings.of(sample)) {
    if (copy.worker == worker || !counts(copy, ready_by)) continue;
    return Option{Source::peer, copy.worker, copy.available_at,
                  input.model.fetch_peer(input.sizes[sample], copy.storage)};
  }
  return std::nullopt;
}

std::optional<Option> soonest_option(const SimulationInput& input, uint32_t worker, uint32_t sample,
                                     double now) {
  std::optional<Option> best;
  double best_end = 0;
  for (const Holding& copy : input.strategy.holdings.of(sample)) {
    if (!counts(copy, kNotYet)) continue;
    const bool own = copy.worker == worker;
    const double mb = input.sizes[sample];
    const double seconds =
        own ? input.model.fetch_local(mb, copy.storage) : input.model.fetch_peer(mb, copy.storage);
    const double end = std::max<double>(now, copy.available_at) + seconds;
    if (best && (end > best_end || (end == best_end && !own))) continue;
    best = Option{own ? Source::local : Source::peer, copy.worker, copy.available_at, seconds};
    best_end = end;
  }
  return best;
}

void note_fetched(const SimulationInput& input, uint32_t worker, uint32_t sample, double time) {
  if (input.strategy.on_pfs_read) return;  // which says itself what is kept
  Holding* copy = input.strategy.holdings.find(sample, worker);
  if (copy != nullptr && copy->on_use && std::isinf(copy->available_at)) {
    copy->available_at = not_after(time);
  }
}

}  // namespace clairfs
