#include "plan/run/plan_run.h"

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/text.h"
#include "plan/inference/seed_diagnosis.h"
#include "plan/sequence/plan_sampler.h"
#include "plan/tracking/diagnosis.h"

namespace clairfs {
namespace {

Error out_of_memory() {
  return {ENOMEM, "plan: not enough memory for its orders"};
}

Error no_samples(const PlanRun& run) {
  const PlanSpec& plan = run.resolved();
  return {EINVAL,
          fmt::format("plan: of {} samples the first epoch has none for this node (world={} batch={}): want "
                      "fewer ranks, a smaller batch, no drop_last, or a list whose first order is not empty",
                      run.index().numbered().size(), plan.world, plan.batch)};
}

Result<AccessSequence> make_sequence(const PlanSpec& resolved, const DatasetSource& source,
                                     const std::shared_ptr<const SampleIndex>& index) {
  const SampleIndex& numbered = index->numbered();
  auto sampler = make_plan_sampler(resolved, numbered.size(), source, &numbered);
  if (!sampler) return sampler.error();
  return AccessSequence::make(resolved, std::move(*sampler), index);
}

uint64_t bytes_of(const SampleIndex& index, uint32_t sample) {
  uint64_t bytes = 0;
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece)
    bytes += index.range(sample, piece).length;
  return bytes;
}

// Bytes of some sample: what several have counts once.
uint64_t sum_bytes(const SampleIndex& index) {
  uint64_t bytes = 0;
  std::vector<ByteRange> ranges;
  for (uint32_t sample = 0; sample < index.size(); ++sample) {
    bytes += bytes_of(index, sample);
    for (uint32_t piece = 0; index.shares_bytes() && piece < index.range_count(sample); ++piece)
      ranges.push_back(index.range(sample, piece));
  }
  std::sort(ranges.begin(), ranges.end(), [](const ByteRange& a, const ByteRange& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  ByteRange before{};
  for (const ByteRange& range : ranges) {
    const uint64_t end = range.offset + range.length;
    const uint64_t reach = before.file == range.file ? before.offset + before.length : 0;
    if (reach > range.offset) bytes -= std::min(reach, end) - range.offset;
    if (end > reach || before.file != range.file) before = range;
  }
  return bytes;
}

std::vector<std::shared_ptr<PlanReader>> make_readers(const std::shared_ptr<const SampleIndex>& index,
                                                      const AccessSequence& sequence) {
  std::vector<std::shared_ptr<PlanReader>> readers;
  for (uint32_t rank = 0; rank < sequence.readers(); ++rank) {
    const PlanReader::Ways ways{sequence.reader_slack(), sequence.reader_leap(),
                                sequence.streams_of_reader()};
    readers.push_back(std::make_shared<PlanReader>(index, ways, sequence.last_epoch()));
  }
  return readers;
}

std::vector<Tracker*> trackers_of(const std::vector<std::shared_ptr<PlanReader>>& readers) {
  std::vector<Tracker*> trackers;
  for (const auto& reader : readers) trackers.push_back(&reader->tracker());
  return trackers;
}

}  // namespace

PlanRun::PlanRun(PlanSpec given, PlanSpec resolved, DatasetSource source,
                 std::shared_ptr<const SampleIndex> index, AccessSequence sequence, JobPlace place)
    : given_(std::move(given)),
      resolved_(std::move(resolved)),
      source_(std::move(source)),
      index_(std::move(index)),
      chunk_samples_(ChunkSamples::make(*index_, *source_.catalog)),
      dataset_bytes_(sum_bytes(*index_)),
      place_(place),
      sequence_(std::move(sequence)),
      readers_(make_readers(index_, sequence_)),
      trackers_(trackers_of(readers_)) {}

Result<std::shared_ptr<PlanRun>> PlanRun::make(const PlanSpec& spec, const DatasetSource& source,
                                               JobPlace place) try {
  auto resolved = resolve_plan(spec, place.size);
  if (!resolved) return resolved.error();
  auto index = make_sample_index(*resolved, source);
  if (!index) return index.error();
  resolved->format = (*index)->format();
  auto sequence = make_sequence(*resolved, source, *index);
  if (!sequence) return sequence.error();
  auto run = std::shared_ptr<PlanRun>(
      new PlanRun(spec, *resolved, source, std::move(*index), std::move(*sequence), place));
  const Epoch first(static_cast<uint32_t>(resolved->first_epoch));
  for (uint32_t rank = 0; rank < run->readers_.size(); ++rank) {
    const Status begun =
        run->reader(rank).begin(first, [&](Epoch epoch) { return run->plan_epoch(epoch, rank); });
    if (!begun) return begun.error();
  }
  // In a job it may be that another node has all of them.
  if (run->epoch_length() == 0 && place.size == 1) return no_samples(*run);
  return run;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// The order is made once for all ranks that come to the epoch before another one is made: it is the dear
// part.
Result<PlannedEpoch> PlanRun::plan_epoch(Epoch epoch, uint32_t rank) {
  std::shared_ptr<const EpochSequence> sequence;
  if (!made_.empty()) sequence = std::exchange(made_[rank], nullptr);
  if (!sequence || sequence->epoch() != epoch) {
    made_.assign(readers_.size(), nullptr);
    const auto order = sequence_.order(epoch);
    if (!order) return order.error();
    for (uint32_t other = 0; other < readers_.size(); ++other) {
      made_[other] =
          std::make_shared<const EpochSequence>(sequence_.reader_sequence(*order, epoch, place_.self, other));
    }
    sequence = std::exchange(made_[rank], nullptr);
  }
  return PlannedEpoch::make(std::move(sequence), chunk_samples_, *index_, *source_.catalog);
}

Result<bool> PlanRun::prepare() try {
  bool changed = false;
  for (uint32_t rank = 0; rank < readers_.size(); ++rank) {
    const auto prepared = reader(rank).prepare([&](Epoch epoch) -> Result<PlannedEpoch> {
      auto planned = plan_epoch(epoch, rank);
      if (planned) return planned;
      const Error& why = planned.error();
      return Error{why.code, fmt::format("epoch {} could not be made: {}", epoch.value, why.message)};
    });
    if (!prepared) return prepared.error();
    changed = changed || *prepared;
  }
  return changed;
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Result<EpochSequence> PlanRun::sequence_of(const PlanSpec& spec, Epoch epoch, NodeId node) const try {
  auto sequence = make_sequence(spec, source_, index_);
  if (!sequence) return sequence.error();
  return sequence->sequence(epoch, node);
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

Status PlanRun::add_uses(JobUses& uses, uint64_t epochs) const {
  if (uses.add_records(*index_)) return {};
  auto sequence = make_sequence(resolved_, source_, index_);
  if (!sequence) return sequence.error();
  for (uint64_t i = 0; i < epochs; ++i) {
    const Epoch epoch(static_cast<uint32_t>(resolved_.first_epoch + i));
    if (!sequence->has_epoch(epoch)) break;
    const auto order = sequence->order(epoch);
    if (!order) return order.error();
    for (uint32_t node = 0; node < uses.nodes(); ++node) {
      uses.add(sequence->node_sequence(*order, epoch, NodeId(node)), *index_, NodeId(node));
    }
  }
  return {};
}

PlanRun::Diagnosed PlanRun::diagnose_divergence(const std::function<bool()>& stop) {
  Diagnosed diagnosed;
  for (size_t rank = 0; rank < readers_.size(); ++rank) {
    if (reader(rank).tracker().wants_diagnosis()) diagnose_reader(rank, stop, diagnosed);
  }
  return diagnosed;
}

bool PlanRun::wants_diagnosis() const {
  return std::any_of(readers_.begin(), readers_.end(),
                     [](const auto& reader) { return reader->tracker().wants_diagnosis(); });
}

// A rank that is followed by itself is looked at as the only one of a node.
void PlanRun::diagnose_reader(size_t rank, const std::function<bool()>& stop, Diagnosed& diagnosed) try {
  Tracker& tracker = reader(rank).tracker();
  const bool over = tracker.state() == TrackerState::finished;
  // A rank of a plan that was found goes on with the next epoch, which is no plan yet.
  if (over && name() == kFoundPlan) return (void)tracker.set_hint(Diagnosis().hint);
  PlanSpec spec = resolved_;
  spec.n = index_->numbered().size();
  NodeId node = place_.self;
  if (readers_apart()) {
    node = NodeId(static_cast<uint32_t>(training_rank(rank)));
    spec.ranks_per_node = 1;
  }
  const auto make = [this](const PlanSpec& other, Epoch epoch, NodeId of) {
    return sequence_of(other, epoch, of);
  };
  const auto left = tracker.status().divergence;
  const PlanPosition at = left ? left->at : PlanPosition{tracker.high_water_epoch(), 0};
  // In the order of the rank its streams take turns.
  const uint64_t reorder_window = tracker.reorder_window() * sequence_.readers_of_rank();
  Diagnosis found = diagnose(tracker.evidence(), spec, at, node, reorder_window, make, stop);
  // The seed, and what else it may be, are for those who register plans. A reader without a plan is watched
  // anew, and one that comes when the plan is over has none.
  if (!found.known && !over && name() != kFoundPlan) {
    const Diagnosis seed = diagnose_seed(tracker.around_suspension(), spec, index_->size(), at, node, stop);
    if (seed.known) found = seed;
  }
  if (!found.known && over) found.hint = Diagnosis().hint;
  if (found.epoch && sequence_.has_epoch(*found.epoch)) {
    make_known(rank, *found.epoch);
  } else if (over) {  // who starts the job again begins there, maybe when nothing is diagnosed any more
    make_known(rank, Epoch(static_cast<uint32_t>(resolved_.first_epoch)));
  }
  if (found.reorder_window) tracker.widen(*found.reorder_window);
  const auto divergence = tracker.status().divergence;
  const bool better = divergence && !divergence->hint.starts_with(Diagnosis().hint);
  const bool again = over && divergence && divergence->found;  // it was read to its end, and begun anew
  if (better && (!found.known || again)) found.hint = divergence->hint;  // that was no worse
  if (found.order) diagnosed.orders.push_back(*found.order);
  if (tracker.set_hint(found.hint) && !again) diagnosed.news.push_back(rank);
} catch (const std::bad_alloc&) {
  if (reader(rank).tracker().set_hint(Diagnosis().hint + ": not enough memory to try all"))
    diagnosed.news.push_back(rank);
}

// Where there is no memory for it a reader is not found there.
void PlanRun::make_known(size_t rank, Epoch epoch) try {
  const auto planned = plan_epoch(epoch, static_cast<uint32_t>(rank));
  if (planned) reader(rank).tracker().add_epoch(planned->positions, std::nullopt);
} catch (const std::bad_alloc&) {
}

// A rank without samples is never seen.
TrackerStatus PlanRun::status() const {
  std::optional<TrackerStatus> all;
  for (const auto& reader : readers_) {
    if (reader->timeline().first_length() == 0) continue;
    const TrackerStatus one = reader->tracker().status();
    all = all ? combined(*all, one) : one;
  }
  return all ? *all : reader().tracker().status();
}

bool PlanRun::is_left() const {
  if (of_records()) return false;
  bool left = false;
  for (const auto& reader : readers_) {
    if (reader->tracker().is_followed()) return false;
    left = left || reader->tracker().is_left();
  }
  return left;
}

uint64_t PlanRun::epoch_length() const {
  const Epoch now = status().high_water.epoch;
  uint64_t length = 0;
  for (const auto& reader : readers_) {
    const Timeline timeline = reader->timeline();
    const bool known = timeline.first() <= now && now <= timeline.last();
    length += timeline.epoch(known ? now : timeline.first()).length();
  }
  return length;
}

// torch draws an epoch from seed + epoch: who never read the epoch that was expected may have that seed.
std::string PlanRun::other_seed(const Divergence& d) const {
  const bool adds_up = resolved_.sampler == "torch.distributed" && resolved_.shuffle &&
                       resolved_.set_epoch == "always" && d.found && d.found->epoch > d.at.epoch;
  const bool never_read =
      d.at.epoch.value == resolved_.first_epoch && d.at.position <= 3 * sequence_.reader_slack() + kSightings;
  const auto seed = parse_whole<uint32_t>(resolved_.seed);
  if (!adds_up || !never_read || !seed) return "";
  return fmt::format(" (or is the seed {}?)", uint64_t{*seed} + d.found->epoch.value - d.at.epoch.value);
}

// Two samples may be one file, and one sample may come twice: a name says no more then, and its place does.
std::string PlanRun::describe(size_t rank, const Divergence& d) const {
  const auto name = [&](uint32_t sample) { return escaped(index_->path(sample)); };
  const auto place = [](const PlanPosition& at) {
    return fmt::format("epoch {} position {}", at.epoch.value, at.position);
  };
  std::string text =
      readers_apart() ? fmt::format("{}, {}: ", name_of(rank), place(d.at)) : place(d.at) + ": ";
  if (!d.seen) {
    text += d.expected ? fmt::format("{} samples before {} were left out", d.left_out, name(*d.expected))
                       : fmt::format("{} samples were left out", d.left_out);
  } else if (!d.expected) {
    text += fmt::format("saw {} after the last sample", name(*d.seen));
  } else if (name(*d.expected) == name(*d.seen)) {
    text += fmt::format("saw {} out of turn", name(*d.seen));
  } else {
    text += fmt::format("expected {}, saw {}", name(*d.expected), name(*d.seen));
  }
  if (d.seen && d.due) text += fmt::format(", which is planned at {}", place(*d.due));
  return d.hint.empty() ? text : text + ": " + d.hint + other_seed(d);
}

std::string PlanRun::name_of(size_t reader) const {
  const std::string rank = fmt::format("rank {}", training_rank(reader));
  const auto of_rank = stream(reader);
  return of_rank ? fmt::format("{} stream {}", rank, *of_rank) : rank;
}

std::vector<uint32_t> PlanRun::samples_of(FileId file, uint64_t offset, uint64_t length) const {
  std::vector<uint32_t> samples;
  index_->samples_of(file, offset, length, [&](uint32_t sample) { samples.push_back(sample); });
  return samples;
}

uint64_t PlanRun::memory_bytes() const {
  uint64_t bytes = index_->memory_bytes() + (chunk_samples_ ? chunk_samples_->memory_bytes() : 0);
  for (const auto& reader : readers_) bytes += reader->memory_bytes();
  return bytes;
}

}  // namespace clairfs
