#include "plan/plan_run.h"

#include <algorithm>
#include <cerrno>

#include "plan/plan_sampler.h"
#include "plan/tracker_diagnosis.h"

namespace clairfs {
namespace {

std::optional<Epoch> last_epoch(const PlanSpec& spec) {
  if (spec.epochs == 0) return std::nullopt;
  return Epoch(static_cast<uint32_t>(spec.epochs - 1));
}

Result<AccessSequence> make_sequence(const PlanSpec& resolved, const DatasetSource& source,
                                     const SampleIndex& index) {
  auto sampler = make_plan_sampler(resolved, index.size(), source, &index);
  if (!sampler) return sampler.error();
  return AccessSequence::make(resolved, std::move(*sampler));
}

uint64_t bytes_of(const SampleIndex& index, uint32_t sample) {
  uint64_t bytes = 0;
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece)
    bytes += index.range(sample, piece).length;
  return bytes;
}

uint64_t sum_bytes(const SampleIndex& index) {
  uint64_t bytes = 0;
  for (uint32_t sample = 0; sample < index.size(); ++sample) bytes += bytes_of(index, sample);
  return bytes;
}

}  // namespace

PlanRun::PlanRun(PlanSpec given, PlanSpec resolved, DatasetSource source,
                 std::shared_ptr<const SampleIndex> index, AccessSequence sequence, NodePlace place)
    : given_(std::move(given)),
      resolved_(std::move(resolved)),
      source_(std::move(source)),
      index_(std::move(index)),
      dataset_bytes_(sum_bytes(*index_)),
      place_(place),
      sequence_(std::move(sequence)),
      tracker_(sequence_.slack(), last_epoch(resolved_)) {}

Result<std::shared_ptr<PlanRun>> PlanRun::make(const PlanSpec& spec, const DatasetSource& source,
                                               NodePlace place) {
  auto resolved = resolve_plan(spec, place.nodes);
  if (!resolved) return resolved.error();
  auto index = make_sample_index(*resolved, source);
  if (!index) return index.error();
  if ((*index)->size() == 0) return Error{EINVAL, "plan: there is no sample under root '" + spec.root + "'"};
  resolved->format = (*index)->format();
  auto sequence = make_sequence(*resolved, source, **index);
  if (!sequence) return sequence.error();
  auto run = std::shared_ptr<PlanRun>(
      new PlanRun(spec, *resolved, source, std::move(*index), std::move(*sequence), place));
  const auto first = run->plan_epoch(Epoch(static_cast<uint32_t>(resolved->first_epoch)), 0);
  if (!first) return first.error();
  MutexLock lock(run->mutex_);
  run->horizon_.index = run->index_;
  run->horizon_.epochs.push_back(*first);
  run->refresh_completeness();
  return run;
}

Result<std::shared_ptr<const PlannedEpoch>> PlanRun::plan_epoch(Epoch epoch, uint64_t base) {
  auto sequence = sequence_.sequence(epoch, place_.node);
  if (!sequence) return sequence.error();
  PlannedEpoch planned;
  planned.sequence = std::make_shared<const EpochSequence>(std::move(*sequence));
  planned.positions = std::make_shared<const SequencePositions>(planned.sequence);
  planned.uses = std::make_shared<const EpochUses>(*planned.positions, *index_, *source_.catalog);
  planned.base = base;
  tracker_.add_epoch(planned.positions);
  return std::shared_ptr<const PlannedEpoch>(std::make_shared<PlannedEpoch>(std::move(planned)));
}

void PlanRun::refresh_completeness() {
  const Epoch last = horizon_.epochs.back()->sequence->epoch();
  horizon_.complete = !sequence_.has_epoch(Epoch(last.value + 1));
}

Horizon PlanRun::horizon() const {
  MutexLock lock(mutex_);
  return horizon_;
}

std::optional<uint64_t> PlanRun::absolute(const PlanPosition& where) const {
  MutexLock lock(mutex_);
  for (const auto& epoch : horizon_.epochs) {
    if (epoch->sequence->epoch() == where.epoch) return epoch->base + where.position;
  }
  return std::nullopt;
}

PlanPosition PlanRun::place(uint64_t position) const {
  MutexLock lock(mutex_);
  for (const auto& epoch : horizon_.epochs) {
    if (position < epoch->end()) {
      const uint64_t inside = std::max(position, epoch->base) - epoch->base;
      return {epoch->sequence->epoch(), static_cast<uint32_t>(inside)};
    }
  }
  const auto& last = horizon_.epochs.back()->sequence;
  return {last->epoch(), last->length()};
}

bool PlanRun::wants_preparation() const {
  const Epoch front = tracker_.front().epoch;
  MutexLock lock(mutex_);
  const Epoch last = horizon_.epochs.back()->sequence->epoch();
  const Epoch first = horizon_.epochs.front()->sequence->epoch();
  const bool knows_next = horizon_.complete || last.value >= front.value + 1;
  return !knows_next || first.value + 1 < front.value || front < first || last < front;
}

// The horizon is contiguous. A reader that was found somewhere else altogether begins a new one there.
Result<bool> PlanRun::prepare() {
  if (!wants_preparation()) return false;
  const Epoch front = tracker_.front().epoch;
  Horizon horizon = this->horizon();
  const auto epoch_of = [](const auto& planned) { return planned->sequence->epoch(); };
  const bool elsewhere = front < epoch_of(horizon.epochs.front()) || epoch_of(horizon.epochs.back()) < front;
  if (elsewhere) {
    auto planned = plan_epoch(front, horizon.end());
    if (!planned) return planned.error();
    for (const auto& old : horizon.epochs) tracker_.drop_epoch(epoch_of(old));
    horizon.epochs = {std::move(*planned)};
  }
  while (horizon.epochs.size() > 1 && epoch_of(horizon.epochs.front()).value + 1 < front.value) {
    tracker_.drop_epoch(epoch_of(horizon.epochs.front()));
    horizon.epochs.erase(horizon.epochs.begin());
  }
  const Epoch next(epoch_of(horizon.epochs.back()).value + 1);
  if (next.value <= front.value + 1 && sequence_.has_epoch(next)) {
    auto planned = plan_epoch(next, horizon.end());
    if (!planned) return planned.error();
    horizon.epochs.push_back(std::move(*planned));
  }
  MutexLock lock(mutex_);
  horizon_ = std::move(horizon);
  refresh_completeness();
  return true;
}

Result<EpochSequence> PlanRun::sequence_of(const PlanSpec& spec, Epoch epoch, Rank node) const {
  auto sequence = make_sequence(spec, source_, *index_);
  if (!sequence) return sequence.error();
  return sequence->sequence(epoch, node);
}

Status PlanRun::add_uses(JobUses& uses, uint64_t epochs) const {
  auto sequence = make_sequence(resolved_, source_, *index_);
  if (!sequence) return sequence.error();
  for (uint64_t i = 0; i < epochs; ++i) {
    const Epoch epoch(static_cast<uint32_t>(resolved_.first_epoch + i));
    if (!sequence->has_epoch(epoch)) break;
    const auto order = sequence->order(epoch);
    if (!order) return order.error();
    for (uint32_t node = 0; node < uses.nodes(); ++node) {
      uses.add(sequence->node_sequence(*order, epoch, Rank(node)), *index_, Rank(node));
    }
  }
  return {};
}

std::string PlanRun::diagnose_divergence(const std::function<bool()>& stop) {
  const auto make = [this](const PlanSpec& spec, Epoch epoch, Rank node) {
    return sequence_of(spec, epoch, node);
  };
  const std::vector<Sighting> evidence = tracker_.evidence();
  Diagnosis found =
      diagnose(evidence, resolved_, tracker_.front().epoch, place_.node, sequence_.slack(), make, stop);
  if (found.epoch) {
    auto sequence = sequence_.sequence(*found.epoch, place_.node);
    if (sequence) {
      auto shared = std::make_shared<const EpochSequence>(std::move(*sequence));
      tracker_.add_epoch(std::make_shared<const SequencePositions>(std::move(shared)));
    }
  }
  tracker_.set_hint(found.hint);
  return found.hint;
}

std::vector<uint32_t> PlanRun::samples_of(FileId file, uint64_t offset, uint64_t length) const {
  std::vector<uint32_t> samples;
  index_->samples_of(file, offset, length, [&](uint32_t sample) { samples.push_back(sample); });
  return samples;
}

uint64_t PlanRun::sample_bytes(uint32_t sample) const {
  return bytes_of(*index_, sample);
}

uint64_t PlanRun::memory_bytes() const {
  MutexLock lock(mutex_);
  uint64_t bytes = index_->memory_bytes();
  for (const auto& epoch : horizon_.epochs) {
    bytes += epoch->sequence->memory_bytes() + epoch->positions->memory_bytes() + epoch->uses->memory_bytes();
  }
  return bytes;
}

}  // namespace clairfs
