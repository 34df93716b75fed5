// Deals an epoch's positions to ranks as MosaicML Streaming does.
// Source: mosaicml/streaming, streaming/base/partition/{orig,relaxed}.py (0.5 to 0.14).
#pragma once

#include <cstdint>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// The arguments of get_partitions(). All at least 1 but drop_first.
struct StreamingJob {
  uint64_t samples = 1;
  uint64_t canonical_nodes = 1;
  uint64_t physical_nodes = 1;
  uint64_t ranks_per_node = 1;
  uint64_t workers_per_rank = 1;
  uint64_t batch_size = 1;
  uint64_t drop_first = 0;  ///< samples that the job has seen
};

/// The samples that each rank delivers: the workers' batches in turns, without the -1 that fill up the last
/// ones. Immutable, thread-safe; 8 bytes a rank.
class StreamingPartition {
 public:
  /// Errors: EINVAL where upstream raises an error.
  static Result<StreamingPartition> make(const StreamingJob& job);
  /// The "relaxed" partition of a job that began on `initial_nodes`. Errors: as make().
  static Result<StreamingPartition> make_relaxed(const StreamingJob& job, uint64_t initial_nodes);

  /// Where the rank's part of order() begins; rank == ranks: where the last one ends.
  uint64_t begin(uint64_t rank) const { return begins_[rank]; }
  uint64_t ranks() const { return begins_.size() - 1; }

  /// The samples of all ranks, one after the other, `shuffled` being the sample at each position of the
  /// epoch.
  std::vector<uint32_t> order(const std::vector<uint32_t>& shuffled) const;

 private:
  explicit StreamingPartition(const StreamingJob& job);

  /// Position in the epoch of what a rank of `job_` gets as its k-th.
  uint64_t position(uint64_t rank, uint64_t k) const;
  uint64_t in_canonical_node(uint64_t node, uint64_t i) const;
  /// Calls visit(rank, k) for what the ranks of a job of this shape take of `job_`'s: its rank and number.
  template <class Visit>
  void for_each(uint64_t rank, Visit visit) const;

  StreamingJob job_;         // that the samples are dealt to
  uint64_t taken_by_nodes_;  // physical nodes and batch size of the job that takes them in turns
  uint64_t taken_batch_;
  uint64_t even_ = 0;     // samples of the largest canonical node
  uint64_t padding_ = 0;  // repeated samples of a canonical node that several physical nodes share
  uint64_t width_ = 0;    // both
  uint64_t of_node_ = 0;  // samples of a physical node
  uint64_t of_rank_ = 0;  // samples of a rank
  std::vector<uint64_t> begins_;
};

}  // namespace clairfs
