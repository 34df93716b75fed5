#include <algorithm>
#include <numeric>
#include <random>

#include "plan/placement/placement_map.h"
#include "tests/support/catch.h"
#include "tests/support/record_index.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint32_t kSegmentChunk = 16 << 10;
constexpr uint64_t kSmall = 5000;  // bytes of a record: three and more in a chunk
constexpr uint32_t kManyRecords = 4000;
constexpr uint32_t kUsers = 4;  // nodes

/// Records that all nodes read in orders of their own, and so many files beside them.
struct SegmentJob {
  explicit SegmentJob(uint32_t files = 0) : catalog(made_up_catalog(sizes(files), kSegmentChunk)) {
    index = std::make_unique<RecordIndex>(catalog, 100, kSmall, kManyRecords, files);
  }
  static std::vector<uint64_t> sizes(uint32_t files) {
    std::vector<uint64_t> sizes(1 + files, 9000);
    sizes.front() = 100 + kSmall * kManyRecords;
    return sizes;
  }

  JobUses uses(uint32_t epochs = 3) const {
    std::mt19937 random(7);
    std::vector<uint32_t> order(index->size());
    std::iota(order.begin(), order.end(), 0U);
    JobUses uses(*catalog, kUsers);
    for (uint32_t epoch = 0; epoch < epochs; ++epoch) {
      std::shuffle(order.begin(), order.end(), random);
      for (uint32_t node = 0; node < kUsers; ++node) {
        std::vector<uint32_t> part;
        for (size_t i = node; i < order.size(); i += kUsers) part.push_back(order[i]);
        uses.add(EpochSequence(Epoch(epoch), part, 0), *index, NodeId(node));
      }
    }
    return uses;
  }
  PlacementMap place(const std::vector<NodeCapacity>& capacities,
                     PlacementRule rule = PlacementRule::clairfs) const {
    return PlacementMap::make(*catalog, uses(), capacities, rule);
  }

  uint64_t bytes() const { return catalog->stamp(RecordIndex::kFile).size; }
  uint32_t chunks() const { return catalog->chunks(RecordIndex::kFile).count; }

  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<RecordIndex> index;
};

/// Homes of the node among the chunks of records, which must lie end to end.
uint32_t segment(const PlacementMap& placement, const SegmentJob& job, NodeId node) {
  std::vector<uint32_t> mine;
  for (uint32_t c = 0; c < job.chunks(); ++c) {
    const auto home = placement.home(ChunkId(c));
    if (home && home->node == node) mine.push_back(c);
  }
  if (!mine.empty()) CHECK(mine.back() - mine.front() + 1 == mine.size());
  return static_cast<uint32_t>(mine.size());
}

}  // namespace

TEST_CASE("records that fit are divided among the nodes from end to end, by their room") {
  const SegmentJob job;
  const uint64_t room = job.bytes() / 8;
  // Twice the room that is needed; the last node has most of it, partly on NVMe.
  const std::vector<NodeCapacity> capacities = {
      {room * 2, 0}, {0, room * 2}, {room * 4, 0}, {room * 2, room * 6}};
  const PlacementMap placement = job.place(capacities);
  CHECK(placement.homeless_bytes() == 0);
  uint32_t homes = 0;
  for (uint32_t n = 0; n < kUsers; ++n) {
    const uint64_t all = capacities[n].ram + capacities[n].nvme;
    const uint32_t mine = segment(placement, job, NodeId(n));
    CHECK(mine * room * 16 >= (job.chunks() - kUsers) * all);
    CHECK(mine * room * 16 <= (job.chunks() + 2 * kUsers) * all);
    homes += mine;
    const auto order = placement.prefill_order(NodeId(n));
    CHECK(order.size() == mine);
    CHECK(std::is_sorted(order.begin(), order.end()));
  }
  CHECK(homes == job.chunks());
}

TEST_CASE("of records that do not fit every node keeps what it can, and nothing twice") {
  const SegmentJob job;
  const std::vector<NodeCapacity> capacities = {{job.bytes() / 8, 0},
                                                {0, job.bytes() / 7},
                                                {job.bytes() / 16, job.bytes() / 16},
                                                {kSegmentChunk - 1, 0}};
  for (const PlacementRule rule : {PlacementRule::clairfs, PlacementRule::nopfs}) {
    const PlacementMap placement = job.place(capacities, rule);
    uint64_t kept = 0;
    for (uint32_t n = 0; n < kUsers; ++n) {
      segment(placement, job, NodeId(n));
      kept += placement.kept_bytes(NodeId(n));
      CHECK(placement.copies(NodeId(n)).empty());
      CHECK(placement.kept_bytes(NodeId(n)) + 2 * kSegmentChunk > capacities[n].ram + capacities[n].nvme);
    }
    CHECK(placement.homeless_bytes() == job.bytes() - kept);
    CHECK(placement.covers(ChunkId(job.chunks() - 1)));
  }
}

TEST_CASE("room that is left keeps copies of records, of others first what lies behind the own ones") {
  const SegmentJob job;
  const PlacementMap placement = job.place(std::vector<NodeCapacity>(kUsers, {job.bytes() / 2, 0}));
  CHECK(placement.homeless_bytes() == 0);
  for (uint32_t n = 0; n < kUsers; ++n) {
    segment(placement, job, NodeId(n));
    CHECK(placement.kept_bytes(NodeId(n)) + 2 * kSegmentChunk > job.bytes() / 2);
    const uint32_t next = placement.prefill_order(NodeId(n)).back().value + 1;
    CHECK(placement.tier_at(NodeId(n), ChunkId(next % job.chunks())) != Tier::none);
  }
  const PlacementMap everywhere = job.place(std::vector<NodeCapacity>(kUsers, {2 * job.bytes(), 0}));
  for (uint32_t n = 0; n < kUsers; ++n) CHECK(everywhere.kept_bytes(NodeId(n)) == job.bytes());
}

TEST_CASE("files beside records live where they are used, and the records share what room is left") {
  const uint32_t files = 400;
  const SegmentJob job(files);
  const std::vector<NodeCapacity> capacities(kUsers, {(job.bytes() + files * 10240) * 11 / 10 / kUsers, 0});
  const JobUses uses = job.uses();
  const PlacementMap placement = job.place(capacities);
  CHECK(placement.homeless_bytes() == 0);
  uint32_t homes = 0;
  for (uint32_t n = 0; n < kUsers; ++n) homes += segment(placement, job, NodeId(n));
  CHECK(homes == job.chunks());
  for (uint32_t c = job.chunks(); c < job.catalog->chunk_count(); ++c) {
    REQUIRE(placement.home(ChunkId(c)));
    CHECK(uses.uses(ChunkId(c), placement.home(ChunkId(c))->node) > 0);
  }
}

TEST_CASE("uses of records are not counted, only that they are used") {
  const SegmentJob job;
  JobUses noted(*job.catalog, kUsers);
  CHECK(noted.add_records(*job.index));
  noted.finish();
  JobUses counted = job.uses(8);
  counted.finish();
  for (uint32_t c = 0; c < job.chunks(); ++c) {
    CHECK((noted.used(ChunkId(c)) && counted.used(ChunkId(c))));
    CHECK(counted.total(ChunkId(c)) == 0);
  }
  // Two bytes a chunk and epoch, and nothing for the nodes.
  CHECK(counted.memory_bytes() <= noted.memory_bytes() + 8 * 2 * job.chunks() + 1000);
  const SegmentJob mixed(3);
  CHECK_FALSE(JobUses(*mixed.catalog, kUsers).add_records(*mixed.index));
  CHECK_FALSE(JobUses(*mixed.catalog, kUsers).used(ChunkId(0)));
}

TEST_CASE("the records of a node that dies find homes where there is room") {
  const SegmentJob job;
  const PlacementMap whole = job.place(std::vector<NodeCapacity>(kUsers, {job.bytes() / 2, 0}));
  const PlacementMap left = whole.without({false, true, false, false});
  CHECK(left.homeless_bytes() == 0);
  for (uint32_t c = 0; c < job.chunks(); ++c) {
    const auto before = whole.home(ChunkId(c));
    const auto after = left.home(ChunkId(c));
    REQUIRE(after);
    CHECK(after->node != NodeId(1));
    if (before->node != NodeId(1)) CHECK(after == before);
  }
}
