// The access sequence of a node: which samples it reads, in which order.
//
// A node hosts the training ranks [node * ranks_per_node, (node + 1) * ranks_per_node). They run at the same
// time, each taking one batch a step and waiting for the others at its end (the gradient exchange). So the
// sequence goes step by step, and within a step round robin by sample: the first sample of every rank, then
// the second of every rank, and so on, which is the order in which equally fast ranks ask.
//
// DataLoader hands batch b to worker b mod W and keeps prefetch_factor batches a worker in flight, so files
// are opened up to reorder_window() positions before or after their place in the sequence; the delivered
// order is exact.
//
// Shards that are read from front to back (SampleIndex::is_stream()) are numbered by the sampler; the
// sequence has their stripes, dealt as shard_streams.h says.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/samplers/sampler.h"
#include "plan/sequence/shard_streams.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// Whether the ranks of a job share an epoch's samples among them. Elsewhere each of them reads all, or all
/// of its node's.
bool divides_among_ranks(const PlanSpec& spec);

/// A node's sequence in one epoch, or that of one of its ranks: four bytes a sample. Immutable and
/// thread-safe.
class EpochSequence {
 public:
  EpochSequence(Epoch epoch, std::vector<uint32_t> samples, uint32_t first)
      : epoch_(epoch), first_(first), samples_(std::move(samples)) {}

  Epoch epoch() const { return epoch_; }
  uint32_t length() const { return static_cast<uint32_t>(samples_.size()); }
  /// REQUIRES: position < length().
  uint32_t sample_at(uint32_t position) const { return samples_[position]; }
  std::span<const uint32_t> samples() const { return samples_; }
  /// Where the readers begin: 0, or in the plan's first epoch what start_sample leaves out. Positions stay
  /// those of the whole epoch.
  uint32_t first_position() const { return first_; }
  uint64_t memory_bytes() const { return sizeof(*this) + samples_.capacity() * sizeof(uint32_t); }

 private:
  const Epoch epoch_;
  const uint32_t first_;
  const std::vector<uint32_t> samples_;
};

/// The sequences of all nodes and epochs of a plan, made one epoch at a time. Calls that make an order
/// (order(), sequence(), rank_samples()) are for one thread at a time, since a generator may run on from
/// epoch to epoch (forward is cheap then, going back resumes at a checkpoint); the others are thread-safe.
class AccessSequence {
 public:
  /// Next uses are looked up for each reader: a microsecond a sample for this many.
  static constexpr uint32_t kMostReaders = 16;
  /// The same of streams, where it is a microsecond a stripe.
  static constexpr uint32_t kMostStreams = 64;

  /// `spec` is resolved; `index` is only needed where it is_stream(). Errors: EINVAL when start_sample is
  /// beyond the end of its epoch, or when a node's share of an epoch is more than 2^28 samples.
  static Result<AccessSequence> make(PlanSpec spec, std::unique_ptr<Sampler> sampler,
                                     std::shared_ptr<const SampleIndex> index = nullptr);

  const PlanSpec& spec() const { return spec_; }
  uint32_t nodes() const { return plan_nodes(spec_); }
  /// Where the job ends: as the plan says, or as its list does; nullopt: nowhere.
  std::optional<Epoch> last_epoch() const;
  /// Whether the job gets to that epoch.
  bool has_epoch(Epoch epoch) const;
  /// Upper bound, in positions of a node's sequence, on how far an open strays from its place in it.
  uint64_t reorder_window() const { return reorder_window(spec_.ranks_per_node); }
  /// How many orders of a node can be followed by themselves: one a rank where the sampler divides the
  /// samples among them, up to kMostReaders; else 1, the node's sequence. Ranks that all read the same are
  /// not told apart: the page that one has read is there for the next, which then makes no request. Of
  /// shards each stream of a rank is one, up to kMostStreams.
  uint32_t readers() const;
  /// As many of the readers, one after the other, are a rank's.
  uint32_t readers_of_rank() const;
  /// reorder_window() of one of them, in its own positions.
  uint64_t reader_slack() const;
  /// How far a reader may go on at once: one that has enough of a shard leaves it for the next. Positions;
  /// nothing where samples are no shards.
  std::optional<uint64_t> reader_leap() const;
  /// Streams that take turns in the order of one reader; 0 where samples are no shards.
  uint64_t streams_of_reader() const;

  /// The order that all nodes and ranks share in an epoch: make it once, then call node_sequence() for each
  /// node. Errors: as Sampler::order(); ERANGE unless has_epoch().
  Result<IndexOrder> order(Epoch epoch);
  /// A node's share of it; empty for a node that hosts no rank.
  EpochSequence node_sequence(const IndexOrder& order, Epoch epoch, NodeId node) const;
  /// The part of it that one of the node's readers() takes.
  EpochSequence reader_sequence(const IndexOrder& order, Epoch epoch, NodeId node, uint32_t reader) const;
  /// order() and node_sequence() in one.
  Result<EpochSequence> sequence(Epoch epoch, NodeId node);

  /// The samples that one training rank reads in an epoch, from start_sample on in the first: numbers of the
  /// sampler. Errors: as order(), and EINVAL when there is no such rank.
  Result<std::vector<uint32_t>> rank_samples(Epoch epoch, TrainingRank rank);

 private:
  AccessSequence(PlanSpec spec, std::unique_ptr<Sampler> sampler, std::shared_ptr<const SampleIndex> stripes)
      : spec_(std::move(spec)), sampler_(std::move(sampler)), stripes_(std::move(stripes)) {
    if (stripes_) deal_ = shard_deal(spec_);
  }

  RankSlice slice(Epoch epoch, TrainingRank rank) const;
  uint64_t reorder_window(uint64_t ranks) const;
  uint64_t shard_ranks() const;
  uint64_t positions(uint64_t numbers) const;
  EpochSequence interleaved(const IndexOrder& order, Epoch epoch, uint64_t first, uint64_t ranks) const;
  std::vector<uint32_t> numbers_of(const IndexOrder& order, Epoch epoch, TrainingRank rank) const;
  EpochSequence shards_in_turn(const IndexOrder& order, Epoch epoch, uint64_t first, uint64_t ranks) const;
  /// Samples that the rank takes in one full step.
  uint64_t step_samples(TrainingRank rank) const;

  PlanSpec spec_;
  std::unique_ptr<Sampler> sampler_;
  std::shared_ptr<const SampleIndex> stripes_;  // null: samples are what the sampler numbers
  ShardDeal deal_;
};

}  // namespace clairfs
