#include "plan/plan_run.h"

#include <algorithm>
#include <cerrno>
#include <new>

#include <fmt/format.h>

#include "plan/plan_sampler.h"
#include "plan/tracker_diagnosis.h"

namespace clairfs {
namespace {

// Positions beyond slack in which the tracker may still look for a late open: two sentinels that went unseen,
// and what it keeps of the latest observations.
constexpr uint64_t kMargin = 1024;
// Epochs of less than that many margins are short: three of them hardly take memory.
constexpr uint64_t kShort = 8;

Error out_of_memory() {
  return {ENOMEM, "plan: not enough memory for its orders"};
}

Error no_samples(const PlanRun& run) {
  const PlanSpec& plan = run.resolved();
  return {EINVAL,
          fmt::format("plan: of {} samples the first epoch has none for this node (world={} batch={}): want "
                      "fewer ranks, a smaller batch, no drop_last, or a list whose first order is not empty",
                      run.index().size(), plan.world, plan.batch)};
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
      chunk_samples_(ChunkSamples::make(*index_, *source_.catalog)),
      dataset_bytes_(sum_bytes(*index_)),
      place_(place),
      sequence_(std::move(sequence)),
      tracker_(sequence_.slack(), sequence_.last_epoch()) {}

Result<std::shared_ptr<PlanRun>> PlanRun::make(const PlanSpec& spec, const DatasetSource& source,
                                               NodePlace place) try {
  auto resolved = resolve_plan(spec, place.nodes);
  if (!resolved) return resolved.error();
  auto index = make_sample_index(*resolved, source);
  if (!index) return index.error();
  resolved->format = (*index)->format();
  auto sequence = make_sequence(*resolved, source, **index);
  if (!sequence) return sequence.error();
  auto run = std::shared_ptr<PlanRun>(
      new PlanRun(spec, *resolved, source, std::move(*index), std::move(*sequence), place));
  const auto first = run->plan_epoch(Epoch(static_cast<uint32_t>(resolved->first_epoch)), 0);
  if (!first) return first.error();
  // In a job it may be that another node has all of them.
  if ((*first)->sequence->length() == 0 && place.nodes == 1) return no_samples(*run);
  Horizon horizon;
  horizon.index = run->index_;
  horizon.epochs.push_back(*first);
  run->publish(std::move(horizon));
  return run;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<std::shared_ptr<const PlannedEpoch>> PlanRun::plan_epoch(Epoch epoch, uint64_t base) {
  auto sequence = sequence_.sequence(epoch, place_.node);
  if (!sequence) return sequence.error();
  PlannedEpoch planned;
  planned.sequence = std::make_shared<const EpochSequence>(std::move(*sequence));
  planned.positions = std::make_shared<const SequencePositions>(planned.sequence);
  planned.uses =
      std::make_shared<const EpochUses>(planned.positions, chunk_samples_, *index_, *source_.catalog);
  planned.base = base;
  tracker_.add_epoch(planned.positions);
  return std::shared_ptr<const PlannedEpoch>(std::make_shared<PlannedEpoch>(std::move(planned)));
}

void PlanRun::publish(Horizon horizon) {
  const Epoch last = horizon.epochs.back()->sequence->epoch();
  horizon.complete = !sequence_.has_epoch(Epoch(last.value + 1));
  MutexLock lock(mutex_);
  horizon_ = std::move(horizon);
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

// The epoch before the reader's is kept while opens may still come late and pages wait to be dropped; the one
// after it is not needed before that.
PlanRun::Wanted PlanRun::wanted() const {
  const uint64_t margin = sequence_.slack() + kMargin;
  const PlanPosition safe = tracker_.position();
  Wanted want;
  want.front = tracker_.front().epoch;
  MutexLock lock(mutex_);
  const Epoch first = horizon_.epochs.front()->sequence->epoch();
  const Epoch last = horizon_.epochs.back()->sequence->epoch();
  want.elsewhere = want.front < first || last < want.front;
  if (want.elsewhere) {
    want.next = true;
    return want;
  }
  const bool is_short = horizon_.epochs[want.front.value - first.value]->sequence->length() < kShort * margin;
  const bool well_in = safe.epoch == want.front && safe.position >= margin;
  want.keep = (well_in && !is_short) || want.front == first ? want.front : Epoch(want.front.value - 1);
  want.drop = first < want.keep;
  want.next = !horizon_.complete && last == want.front && (is_short || well_in || want.front == first);
  return want;
}

bool PlanRun::wants_preparation() const {
  const Wanted want = wanted();
  return want.elsewhere || want.drop || want.next;
}

// The horizon is contiguous. A reader that was found somewhere else altogether begins a new one there.
Result<bool> PlanRun::prepare() try {
  const Wanted want = wanted();
  if (!want.elsewhere && !want.drop && !want.next) return false;
  Horizon horizon = this->horizon();
  const auto epoch_of = [](const auto& planned) { return planned->sequence->epoch(); };
  if (want.elsewhere) {
    auto planned = plan_epoch(want.front, horizon.end());
    if (!planned) return planned.error();
    for (const auto& old : horizon.epochs) tracker_.drop_epoch(epoch_of(old));
    horizon.epochs = {std::move(*planned)};
  }
  while (want.drop && epoch_of(horizon.epochs.front()) < want.keep) {
    tracker_.drop_epoch(epoch_of(horizon.epochs.front()));
    horizon.epochs.erase(horizon.epochs.begin());
  }
  publish(horizon);  // what is not needed is let go of before more is made
  const Epoch next(want.front.value + 1);
  if (want.next && sequence_.has_epoch(next)) {
    auto planned = plan_epoch(next, horizon.end());
    if (!planned) return planned.error();
    horizon.epochs.push_back(std::move(*planned));
    publish(horizon);
  }
  return true;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<EpochSequence> PlanRun::sequence_of(const PlanSpec& spec, Epoch epoch, Rank node) const try {
  auto sequence = make_sequence(spec, source_, *index_);
  if (!sequence) return sequence.error();
  return sequence->sequence(epoch, node);
} catch (const std::bad_alloc&) {
  return out_of_memory();
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

bool PlanRun::diagnose_divergence(const std::function<bool()>& stop) {
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
  const auto divergence = tracker_.status().divergence;
  if (divergence && found.hint == Diagnosis().hint) found.hint = divergence->hint;  // that was no worse
  return tracker_.set_hint(found.hint);
}

std::vector<uint32_t> PlanRun::samples_of(FileId file, uint64_t offset, uint64_t length) const {
  std::vector<uint32_t> samples;
  index_->samples_of(file, offset, length, [&](uint32_t sample) { samples.push_back(sample); });
  return samples;
}

uint64_t PlanRun::memory_bytes() const {
  MutexLock lock(mutex_);
  uint64_t bytes = index_->memory_bytes() + (chunk_samples_ ? chunk_samples_->memory_bytes() : 0);
  for (const auto& epoch : horizon_.epochs) {
    bytes += epoch->sequence->memory_bytes() + epoch->positions->memory_bytes() + epoch->uses->memory_bytes();
    bytes += epoch->sequence->length() / 8;  // what the tracker has seen of it
  }
  return bytes;
}

}  // namespace clairfs
