#include "plan/sequence/access_sequence.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// A node's positions in an epoch. Each takes 9 bytes and a bit, and there are two or three epochs at a time:
// 7 GB, where ten million samples that each of eight ranks reads take 2.2.
constexpr uint64_t kMostPositions = 1ULL << 28;

// What one rank contributes to its node's sequence.
struct Stream {
  RankOrder order;
  uint64_t step;  ///< samples a full step
};

// Appends the samples of all streams, step by step, round robin within a step.
void interleave(const std::vector<Stream>& streams, std::vector<uint32_t>& samples) {
  uint64_t steps = 0;
  uint64_t longest = 0;
  for (const Stream& stream : streams) {
    steps = std::max(steps, (stream.order.size() + stream.step - 1) / stream.step);
    longest = std::max(longest, std::min<uint64_t>(stream.step, stream.order.size()));
  }
  for (uint64_t step = 0; step < steps; ++step) {
    for (uint64_t i = 0; i < longest; ++i) {
      for (const Stream& stream : streams) {
        const uint64_t k = step * stream.step + i;
        if (i < stream.step && k < stream.order.size()) samples.push_back(stream.order[k]);
      }
    }
  }
}

}  // namespace

bool divides_among_ranks(const PlanSpec& spec) {
  const bool whole = spec.sampler.starts_with("tf.") && (spec.shard.empty() || spec.shard == "none");
  return sampler_traits(spec.sampler).divides && !whole;
}

Result<AccessSequence> AccessSequence::make(PlanSpec spec, std::unique_ptr<Sampler> sampler) {
  AccessSequence made(std::move(spec), std::move(sampler));
  const Epoch first(static_cast<uint32_t>(made.spec_.first_epoch));
  const uint64_t count = made.slice(first, TrainingRank(0)).count;
  if (made.spec_.start_sample != 0 && made.spec_.start_sample >= count) {
    return plan_error(
        "start_sample", std::to_string(made.spec_.start_sample),
        fmt::format("want less than the {} samples that a training rank has in an epoch", count));
  }
  if (count >= kMostPositions / made.spec_.ranks_per_node) {
    return plan_error("ranks_per_node", std::to_string(made.spec_.ranks_per_node),
                      fmt::format("at {} samples each they are more than {} a node and epoch; want fewer",
                                  count, kMostPositions));
  }
  return made;
}

std::optional<Epoch> AccessSequence::last_epoch() const {
  uint64_t count = spec_.epochs == 0 ? UINT64_MAX : spec_.epochs;
  if (const auto made = sampler_->epoch_count()) count = std::min<uint64_t>(count, *made);
  return count == UINT64_MAX ? std::nullopt : std::optional(Epoch(static_cast<uint32_t>(count - 1)));
}

bool AccessSequence::has_epoch(Epoch epoch) const {
  const std::optional<Epoch> last = last_epoch();
  return epoch.value >= spec_.first_epoch && (!last || epoch <= *last);
}

uint64_t AccessSequence::slack(uint64_t ranks) const {
  // No node's epoch is longer than kMostPositions, and more than that might overflow.
  const uint64_t steps = std::min(spec_.prefetch_factor * spec_.workers + 1, kMostPositions);
  const uint64_t step = std::min(step_samples(TrainingRank(0)) * ranks, kMostPositions);
  // interleave() has so many files open at once, and closes them in the order in which they end.
  return std::min(steps * step + spec_.cycle_length * ranks, kMostPositions);
}

uint64_t AccessSequence::step_samples(TrainingRank rank) const {
  if (spec_.sampler == "accelerate" && spec_.split_batches) {
    return std::max<uint64_t>(spec_.batch / (spec_.dispatch_batches ? 1 : spec_.world), 1);
  }
  if (spec_.sampler != "nopfs") return spec_.batch;
  // NoPFS splits the job's batch into runs of ceil(batch / world); the last ranks may get less.
  const uint64_t run = (spec_.batch + spec_.world - 1) / spec_.world;
  const uint64_t before = std::min(rank.value * run, spec_.batch);
  return std::max<uint64_t>(std::min(run, spec_.batch - before), 1);
}

RankSlice AccessSequence::slice(Epoch epoch, TrainingRank rank) const {
  RankSlice slice = sampler_->slice(epoch, rank);
  const bool loader_drops = spec_.drops_in_loader() && sampler_traits(spec_.sampler).in_loader;
  if (loader_drops) slice.count -= slice.count % spec_.batch;
  return slice;
}

Result<IndexOrder> AccessSequence::order(Epoch epoch) {
  if (!has_epoch(epoch)) {
    return Error{ERANGE, fmt::format("plan: the job has no epoch {} (first_epoch={} epochs={})", epoch.value,
                                     spec_.first_epoch, spec_.epochs)};
  }
  return sampler_->order(epoch);
}

uint32_t AccessSequence::readers() const {
  const bool apart = divides_among_ranks(spec_) && spec_.ranks_per_node <= kMostReaders;
  return apart ? static_cast<uint32_t>(spec_.ranks_per_node) : 1;
}

EpochSequence AccessSequence::node_sequence(const IndexOrder& order, Epoch epoch, NodeId node) const {
  return interleaved(order, epoch, node.value * spec_.ranks_per_node, spec_.ranks_per_node);
}

EpochSequence AccessSequence::reader_sequence(const IndexOrder& order, Epoch epoch, NodeId node,
                                              uint32_t reader) const {
  if (readers() == 1) return node_sequence(order, epoch, node);
  return interleaved(order, epoch, node.value * spec_.ranks_per_node + reader, 1);
}

// Empty for ranks beyond the world.
EpochSequence AccessSequence::interleaved(const IndexOrder& order, Epoch epoch, uint64_t first,
                                          uint64_t ranks) const {
  if (first + ranks > spec_.world) return {epoch, {}, 0};
  std::vector<Stream> streams;
  uint64_t total = 0;
  uint64_t before = 0;
  for (uint64_t i = 0; i < ranks; ++i) {
    const TrainingRank rank(static_cast<uint32_t>(first + i));
    const RankSlice taken = slice(epoch, rank);
    streams.push_back({RankOrder(order, taken), step_samples(rank)});
    total += taken.count;
    before += std::min(spec_.start_sample, taken.count);
  }
  std::vector<uint32_t> samples;
  samples.reserve(total);
  interleave(streams, samples);
  return {epoch, std::move(samples), epoch.value == spec_.first_epoch ? static_cast<uint32_t>(before) : 0};
}

Result<EpochSequence> AccessSequence::sequence(Epoch epoch, NodeId node) {
  const Result<IndexOrder> shared = order(epoch);
  if (!shared) return shared.error();
  return node_sequence(*shared, epoch, node);
}

Result<std::vector<uint32_t>> AccessSequence::rank_samples(Epoch epoch, TrainingRank rank) {
  if (rank.value >= spec_.world) {
    return Error{EINVAL,
                 fmt::format("plan: no training rank {}; want one below world={}", rank.value, spec_.world)};
  }
  const Result<IndexOrder> shared = order(epoch);
  if (!shared) return shared.error();
  const RankOrder mine(*shared, slice(epoch, rank));
  std::vector<uint32_t> samples;
  for (uint64_t k = epoch.value == spec_.first_epoch ? spec_.start_sample : 0; k < mine.size(); ++k) {
    samples.push_back(mine[k]);
  }
  return samples;
}

}  // namespace clairfs
