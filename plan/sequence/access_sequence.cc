#include "plan/sequence/access_sequence.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

#include "plan/formats/streams/stripes.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// A node's positions in an epoch. Each takes 9 bytes and a bit, and there are two or three epochs at a time:
// 7 GB, where ten million samples that each of eight ranks reads take 2.2.
constexpr uint64_t kMostPositions = 1ULL << 28;

// The kernel reads so much ahead of a reader: two of its windows, of which each is a READ.
constexpr uint64_t kReadAhead = 2 << 20;

// Of streams that take turns, the stripes by which they may be apart as they are read at the speed of their
// slowest; more is seen and allowed for (Progress).
constexpr uint64_t kApart = 2;

// An order of which more than this part lies ahead of a reader, where it may go on at once, could be any
// order.
constexpr uint64_t kLeastLeaps = 8;

// What one rank contributes to its node's sequence.
struct Stream {
  RankOrder order;
  uint64_t step;  // samples a full step
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
  return sampler_traits(spec.sampler).divides && !whole && !spec.copies_shards();
}

Result<AccessSequence> AccessSequence::make(PlanSpec spec, std::unique_ptr<Sampler> sampler,
                                            std::shared_ptr<const SampleIndex> index) {
  if (index && !index->is_stream()) index.reset();
  AccessSequence made(std::move(spec), std::move(sampler), std::move(index));
  const Epoch first(static_cast<uint32_t>(made.spec_.first_epoch));
  const uint64_t count = made.slice(first, TrainingRank(0)).count;
  if (made.spec_.start_sample != 0 && made.spec_.start_sample >= count) {
    return plan_error(
        "start_sample", std::to_string(made.spec_.start_sample),
        fmt::format("want less than the {} samples that a training rank has in an epoch", count));
  }
  if (made.positions(count) >= kMostPositions / made.spec_.ranks_per_node) {
    return plan_error("ranks_per_node", std::to_string(made.spec_.ranks_per_node),
                      fmt::format("at {} samples each they are more than {} a node and epoch; want fewer",
                                  made.positions(count), kMostPositions));
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

// How many positions so many of the sampler's numbers are, on average.
uint64_t AccessSequence::positions(uint64_t numbers) const {
  const uint64_t shards = stripes_ ? stripes_->numbered().size() : 0;
  return shards == 0 ? numbers : (numbers * stripes_->size() + shards - 1) / shards;
}

uint64_t AccessSequence::reorder_window(uint64_t ranks) const {
  if (stripes_) return reader_slack() * readers_of_rank() * (readers() > 1 ? ranks : 1);
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

// Ranks whose shards are not the same.
uint64_t AccessSequence::shard_ranks() const {
  return divides_among_ranks(spec_) ? spec_.ranks_per_node : 1;
}

uint32_t AccessSequence::readers_of_rank() const {
  const bool apart = stripes_ && !deal_.where_one_has_ended && shard_ranks() * deal_.streams <= kMostStreams;
  return apart ? static_cast<uint32_t>(deal_.streams) : 1;
}

uint64_t AccessSequence::streams_of_reader() const {
  return stripes_ ? shard_ranks() * deal_.streams / readers() : 0;
}

uint64_t AccessSequence::reader_slack() const {
  if (!stripes_) return reorder_window(readers() == 1 ? spec_.ranks_per_node : 1);
  const uint64_t first = stripes_->size() == 0 ? 0 : stripes_->range(0, 0).length;
  const uint64_t stripe = std::max(first, kLeastStripe);
  const uint64_t ahead = 1 + (kReadAhead + stripe - 1) / stripe;
  return streams_of_reader() == 1 ? ahead : streams_of_reader() * (ahead + kApart);
}

std::optional<uint64_t> AccessSequence::reader_leap() const {
  if (!stripes_) return std::nullopt;
  const uint64_t epoch =
      positions(slice(Epoch(static_cast<uint32_t>(spec_.first_epoch)), TrainingRank(0)).count);
  return std::min(positions(streams_of_reader()), epoch * shard_ranks() / readers() / kLeastLeaps);
}

uint32_t AccessSequence::readers() const {
  if (stripes_) {
    const uint64_t ranks = shard_ranks() <= kMostStreams ? shard_ranks() : 1;
    return static_cast<uint32_t>(ranks) * readers_of_rank();
  }
  const bool apart = divides_among_ranks(spec_) && spec_.ranks_per_node <= kMostReaders;
  return apart ? static_cast<uint32_t>(spec_.ranks_per_node) : 1;
}

EpochSequence AccessSequence::node_sequence(const IndexOrder& order, Epoch epoch, NodeId node) const {
  return interleaved(order, epoch, node.value * spec_.ranks_per_node, spec_.ranks_per_node);
}

EpochSequence AccessSequence::reader_sequence(const IndexOrder& order, Epoch epoch, NodeId node,
                                              uint32_t reader) const {
  if (readers() == 1) return node_sequence(order, epoch, node);
  const uint64_t first = node.value * spec_.ranks_per_node;
  const uint32_t streams = readers_of_rank();
  if (streams == 1) return interleaved(order, epoch, first + reader, 1);
  const uint64_t rank = first + reader / streams;
  if (rank >= spec_.world) return {epoch, {}, 0};
  const auto shards = numbers_of(order, epoch, TrainingRank(static_cast<uint32_t>(rank)));
  auto dealt = deal_shards(deal_, shards, *stripes_);
  return {epoch, std::move(dealt[reader % streams]), 0};
}

// What the sampler numbers: as the rank reads it in the epoch, in the first one without what it has.
std::vector<uint32_t> AccessSequence::numbers_of(const IndexOrder& order, Epoch epoch,
                                                 TrainingRank rank) const {
  const RankOrder mine(order, slice(epoch, rank));
  std::vector<uint32_t> numbers;
  for (uint64_t k = epoch.value == spec_.first_epoch ? spec_.start_sample : 0; k < mine.size(); ++k)
    numbers.push_back(mine[k]);
  return numbers;
}

EpochSequence AccessSequence::shards_in_turn(const IndexOrder& order, Epoch epoch, uint64_t first,
                                             uint64_t ranks) const {
  std::vector<std::vector<uint32_t>> streams;
  for (uint64_t i = 0; i < std::min(ranks, shard_ranks()); ++i) {
    const auto shards = numbers_of(order, epoch, TrainingRank(static_cast<uint32_t>(first + i)));
    for (auto& stream : deal_shards(deal_, shards, *stripes_)) streams.push_back(std::move(stream));
  }
  return {epoch, in_turn(streams), 0};
}

// Empty for ranks beyond the world.
EpochSequence AccessSequence::interleaved(const IndexOrder& order, Epoch epoch, uint64_t first,
                                          uint64_t ranks) const {
  if (first + ranks > spec_.world) return {epoch, {}, 0};
  if (stripes_) return shards_in_turn(order, epoch, first, ranks);
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
  return numbers_of(*shared, epoch, rank);
}

}  // namespace clairfs
