#include "plan/samplers/streaming/partition.h"

#include <algorithm>
#include <cerrno>
#include <string>

namespace clairfs {
namespace {

// Samples: more than any job takes a step, and counted one by one where ranks are laid out anew.
constexpr uint64_t kLargestGlobalBatch = 1 << 26;

bool divides(uint64_t a, uint64_t b) {
  return a % b == 0 || b % a == 0;
}

uint64_t rounded_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

StreamingPartition::StreamingPartition(const StreamingJob& job)
    : job_(job), taken_by_nodes_(job.physical_nodes), taken_batch_(job.batch_size) {
  job_.drop_first -= job_.drop_first % job_.physical_nodes;
  even_ = (job_.samples + job_.canonical_nodes - 1) / job_.canonical_nodes;
  if (job_.canonical_nodes < job_.physical_nodes) {
    width_ = rounded_up(even_, job_.physical_nodes / job_.canonical_nodes);
    padding_ = width_ - even_;
  } else {
    width_ = even_;
  }
  const uint64_t all = job_.canonical_nodes * width_;
  of_node_ = (all - std::min(all, job_.drop_first)) / job_.physical_nodes;
  of_rank_ = (of_node_ + job_.ranks_per_node - 1) / job_.ranks_per_node;
}

Result<StreamingPartition> StreamingPartition::make(const StreamingJob& job) {
  return make_relaxed(job, job.physical_nodes);
}

Result<StreamingPartition> StreamingPartition::make_relaxed(const StreamingJob& job, uint64_t initial_nodes) {
  StreamingJob dealt = job;
  // Where canonical and physical nodes still divide, the job is dealt to as if it had begun so.
  if (!divides(job.canonical_nodes, job.physical_nodes)) {
    dealt.physical_nodes = initial_nodes;
    const uint64_t global_batch = job.physical_nodes * job.batch_size;
    if (global_batch * job.ranks_per_node > kLargestGlobalBatch) {
      return Error{EINVAL, "batch: the batch of all ranks is too large"};
    }
    if (global_batch % initial_nodes != 0) {
      return Error{EINVAL, "batch: the batch of all ranks must not change when a job is resumed"};
    }
    dealt.batch_size = global_batch / initial_nodes;
  }
  if (!divides(dealt.canonical_nodes, dealt.physical_nodes)) {
    return Error{EINVAL, "num_canonical_nodes: " + std::to_string(dealt.canonical_nodes) + " and the " +
                             std::to_string(dealt.physical_nodes) + " nodes must divide one another"};
  }
  StreamingPartition made(dealt);
  made.taken_by_nodes_ = job.physical_nodes;
  made.taken_batch_ = job.batch_size;
  const uint64_t ratio =
      dealt.physical_nodes > dealt.canonical_nodes ? dealt.physical_nodes / dealt.canonical_nodes : 1;
  if (made.padding_ != 0 && made.width_ + 1 < 2 * made.padding_ + ratio) {
    return Error{EINVAL, "n: too few samples for this number of nodes"};
  }
  made.begins_.push_back(0);
  for (uint64_t rank = 0; rank < job.physical_nodes * job.ranks_per_node; ++rank) {
    uint64_t count = 0;
    if (dealt.physical_nodes == job.physical_nodes) {
      count = made.of_rank_;
    } else {
      made.for_each(rank, [&](uint64_t, uint64_t) { ++count; });
    }
    made.begins_.push_back(made.begins_.back() + count);
  }
  return made;
}

uint64_t StreamingPartition::in_canonical_node(uint64_t node, uint64_t i) const {
  const uint64_t n = job_.samples;
  const bool enough =
      n > job_.canonical_nodes || (n == job_.canonical_nodes && job_.canonical_nodes >= job_.physical_nodes);
  if (!enough) return (node * width_ + i) % n;
  if (i >= even_) {  // padding: samples from before, so that no physical node gets one twice in a row
    const uint64_t ratio = job_.physical_nodes / job_.canonical_nodes;
    i = i + 1 - padding_ - ratio;
  }
  const uint64_t begin = node * n / job_.canonical_nodes;
  const uint64_t end = (node + 1) * n / job_.canonical_nodes;
  const bool repeats_last = i + 1 == even_ && end - begin < even_;
  return begin + i - (repeats_last ? 1 : 0);
}

uint64_t StreamingPartition::position(uint64_t rank, uint64_t k) const {
  const uint64_t per_node = job_.ranks_per_node;
  uint64_t m = rank % per_node + k * per_node;  // number in the physical node
  if (m >= of_node_) {                          // repeated so that all ranks get as many
    const uint64_t missing = of_rank_ * per_node - of_node_;
    m -= of_node_;
    m = per_node + missing - 1 <= of_node_ ? of_node_ + 1 - per_node - missing + m : m % of_node_;
  }
  // Canonical nodes give a sample each in turn, and physical nodes take one each in turn.
  const uint64_t dealt = job_.drop_first + rank / per_node + m * job_.physical_nodes;
  return in_canonical_node(dealt % job_.canonical_nodes, dealt / job_.canonical_nodes);
}

template <class Visit>
void StreamingPartition::for_each(uint64_t rank, Visit visit) const {
  if (taken_by_nodes_ == job_.physical_nodes) {
    for (uint64_t k = 0; k < of_rank_; ++k) visit(rank, k);
    return;
  }
  // In each turn all ranks' batches lie in a row, which is as long in both jobs; this one cuts it its own
  // way.
  for (uint64_t turn = 0; turn * job_.batch_size < of_rank_; ++turn) {
    for (uint64_t i = 0; i < taken_batch_; ++i) {
      const uint64_t at = rank * taken_batch_ + i;
      const uint64_t k = turn * job_.batch_size + at % job_.batch_size;
      if (k < of_rank_) visit(at / job_.batch_size, k);
    }
  }
}

std::vector<uint32_t> StreamingPartition::order(const std::vector<uint32_t>& shuffled) const {
  std::vector<uint32_t> samples;
  samples.reserve(begins_.back());
  for (uint64_t rank = 0; rank < ranks(); ++rank) {
    for_each(rank, [&](uint64_t dealt_to, uint64_t k) {
      const uint64_t at = position(dealt_to, k);
      samples.push_back(shuffled.empty() ? static_cast<uint32_t>(at) : shuffled[at]);
    });
  }
  return samples;
}

}  // namespace clairfs
