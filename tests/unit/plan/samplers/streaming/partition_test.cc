#include "plan/samplers/streaming/partition.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

StreamingJob job_of(const golden::Json& params) {
  return {.samples = params.at("num_samples"),
          .canonical_nodes = params.at("num_canonical_nodes"),
          .physical_nodes = params.at("num_physical_nodes"),
          .ranks_per_node = params.at("ranks_per_node"),
          .workers_per_rank = params.at("workers_per_rank"),
          .batch_size = params.at("batch_size"),
          .drop_first = params.at("drop_first")};
}

/// get_partitions()'s array, flat: of each rank, its workers' batches, filled up with -1.
std::vector<int64_t> as_array(const StreamingPartition& partition, const StreamingJob& job,
                              uint64_t batches) {
  const std::vector<uint32_t> order = partition.order({});
  const uint64_t of_worker = batches * job.batch_size;
  std::vector<int64_t> flat(partition.ranks() * job.workers_per_rank * of_worker, -1);
  for (uint64_t rank = 0; rank < partition.ranks(); ++rank) {
    for (uint64_t at = partition.begin(rank); at < partition.begin(rank + 1); ++at) {
      const uint64_t k = at - partition.begin(rank);
      const uint64_t batch = k / job.batch_size;
      const uint64_t worker = rank * job.workers_per_rank + batch % job.workers_per_rank;
      flat[worker * of_worker + batch / job.workers_per_rank * job.batch_size + k % job.batch_size] =
          order[at];
    }
  }
  return flat;
}

}  // namespace

TEST_CASE("StreamingDataset's original partition") {
  size_t checked = 0;
  for (const auto& test : golden::cases("streaming")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "partition_orig") continue;
    INFO(test.at("id"));
    const StreamingJob job = job_of(params);
    const StreamingPartition partition = StreamingPartition::make(job).value();
    CHECK(golden::same_sequence(test.at("result").at("flat"),
                                as_array(partition, job, test.at("result").at("shape")[3])));
    ++checked;
  }
  CHECK(checked == 5);
}

TEST_CASE("StreamingDataset's relaxed partition of jobs that go on with other nodes") {
  size_t checked = 0;
  for (const auto& test : golden::cases("streaming_relaxed")) {
    INFO(test.at("id"));
    const golden::Json& params = test.at("params");
    const StreamingPartition partition =
        StreamingPartition::make_relaxed(job_of(params), params.at("initial_physical_nodes")).value();
    const std::vector<uint32_t> order = partition.order({});
    const golden::Json& ranks = test.at("result").at("ranks");
    REQUIRE(partition.ranks() == ranks.size());
    for (uint64_t rank = 0; rank < ranks.size(); ++rank) {
      INFO("rank " << rank);
      const auto expected = ranks[rank].get<std::vector<uint32_t>>();
      REQUIRE(partition.begin(rank + 1) - partition.begin(rank) == expected.size());
      const auto begin = order.begin() + static_cast<std::ptrdiff_t>(partition.begin(rank));
      CHECK(std::equal(expected.begin(), expected.end(), begin));
    }
    ++checked;
  }
  CHECK(checked == 7);
}

TEST_CASE("partitions that upstream refuses") {
  const StreamingJob uneven{.samples = 100, .canonical_nodes = 3, .physical_nodes = 2};
  CHECK_FALSE(StreamingPartition::make(uneven));
  const StreamingJob other_batch{.samples = 100, .canonical_nodes = 4, .physical_nodes = 3, .batch_size = 5};
  CHECK_FALSE(StreamingPartition::make_relaxed(other_batch, 4));
  CHECK(StreamingPartition::make_relaxed(
      {.samples = 100, .canonical_nodes = 4, .physical_nodes = 3, .batch_size = 8}, 4));
}

TEST_CASE("what a job has seen does not come again") {
  const StreamingJob job{.samples = 100, .physical_nodes = 2, .ranks_per_node = 2, .drop_first = 1000};
  CHECK(StreamingPartition::make(job).value().begin(4) == 0);
}
