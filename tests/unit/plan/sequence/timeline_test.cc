#include "plan/sequence/timeline.h"

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

/// Epochs 4 and 5 of two files: `a` is sample 0 in chunks 0 and 1, `b` is sample 1 in chunk 2.
struct TwoEpochs {
  TwoEpochs() {
    tree.write("a", 5000);
    tree.write("b", 10);
    source = scanned(tree);
    auto index = make_sample_index(*parse_plan("seed=1"), source);
    REQUIRE(index);
    timeline = Timeline(*index);
    append(Epoch(4), {0, 1, 0}, 10);
    append(Epoch(5), {1, 0, 1}, 13);
  }
  void append(Epoch number, std::vector<uint32_t> samples, uint64_t base) {
    PlannedEpoch epoch =
        PlannedEpoch::make(std::make_shared<const EpochSequence>(number, std::move(samples), 0), nullptr,
                           timeline.index(), *source.catalog);
    epoch.base = base;
    timeline.append(std::make_shared<const PlannedEpoch>(std::move(epoch)));
  }

  TempTree tree;
  DatasetSource source;
  Timeline timeline;
};

}  // namespace

TEST_CASE("positions count on from one epoch of a timeline to the next") {
  const TwoEpochs two;
  const Timeline& timeline = two.timeline;
  CHECK(timeline.begin() == 10);
  CHECK(timeline.end() == 16);
  CHECK(timeline.first() == Epoch(4));
  CHECK(timeline.last() == Epoch(5));
  CHECK(timeline.epoch(Epoch(5)).base == 13);
  CHECK(!timeline.holds(9));
  CHECK(!timeline.covers(9));
  CHECK(timeline.holds(15));
  CHECK(!timeline.holds(16));
  CHECK(timeline.covers(16));
  CHECK(timeline.sample_at(12) == 0);
  CHECK(timeline.sample_at(13) == 1);
  CHECK(timeline.epoch_end(12) == 13);
  CHECK(timeline.epoch_end(13) == 16);
  CHECK(timeline.position_of(12) == PlanPosition{Epoch(4), 2});
  CHECK(timeline.position_of(13) == PlanPosition{Epoch(5), 0});
  CHECK(timeline.position_of(16) == PlanPosition{Epoch(5), 3});
}

TEST_CASE("uses are found across the epochs of a timeline") {
  const TwoEpochs two;
  const Timeline& timeline = two.timeline;
  CHECK(!timeline.uses_within(1, 12, 13));
  CHECK(timeline.uses_within(1, 12, 14));
  CHECK(timeline.next_use(ChunkId(2), 11) == 11U);
  CHECK(timeline.next_use(ChunkId(2), 12) == 13U);
  CHECK(timeline.next_use(ChunkId(2), 16) == std::nullopt);
  CHECK(timeline.count_uses(ChunkId(0), 11).to_come == 2);
  CHECK(timeline.count_uses(ChunkId(0), 11).an_epoch == 2);
  CHECK(timeline.count_uses(ChunkId(0), 15).to_come == 0);
  CHECK(timeline.count_uses(ChunkId(0), 15).an_epoch == 2);
}

TEST_CASE("a timeline without its first epoch keeps its positions and is another one") {
  const TwoEpochs two;
  Timeline timeline = two.timeline;
  CHECK((timeline == two.timeline));
  timeline.set_complete(true);
  CHECK_FALSE((timeline == two.timeline));
  timeline.set_complete(false);
  timeline.drop_first();
  CHECK_FALSE((timeline == two.timeline));
  CHECK(timeline.begin() == 13);
  CHECK(timeline.first() == Epoch(5));
  CHECK(timeline.sample_at(13) == 1);
  CHECK(timeline.next_use(ChunkId(0), 0) == 14U);
}
