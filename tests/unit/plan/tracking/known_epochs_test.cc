#include "plan/tracking/known_epochs.h"

#include <memory>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::shared_ptr<const SequencePositions> order(uint32_t epoch, std::vector<uint32_t> samples) {
  return std::make_shared<const SequencePositions>(
      std::make_shared<const EpochSequence>(Epoch(epoch), std::move(samples), 0));
}

}  // namespace

TEST_CASE("positions count on from epoch to epoch") {
  KnownEpochs epochs;
  CHECK(epochs.add(order(3, {7, 8, 9}), 100) == 0);
  CHECK(epochs.add(order(4, {9, 7}), 103) == 0);
  CHECK(epochs.place(Epoch(3), 101) == PlanPosition{Epoch(3), 1});
  CHECK(epochs.place(Epoch(3), 50) == PlanPosition{Epoch(3), 0});
  CHECK(epochs.place(Epoch(3), 103) == PlanPosition{Epoch(4), 0});
  CHECK(epochs.place(Epoch(4), 103) == PlanPosition{Epoch(4), 0});
  CHECK(epochs.place(Epoch(4), 110) == PlanPosition{Epoch(4), 2});
  CHECK(epochs.sample_at({Epoch(4), 1}) == 7U);
  CHECK_FALSE(epochs.sample_at({Epoch(4), 2}));
  CHECK(epochs.nearest_use(7, {Epoch(4), 0}) == PlanPosition{Epoch(4), 1});
  CHECK(epochs.nearest_use(8, {Epoch(4), 0}) == PlanPosition{Epoch(3), 1});
}

TEST_CASE("an epoch from elsewhere lies apart until it gets its place") {
  KnownEpochs epochs;
  epochs.add(order(3, {7, 8, 9}), 100);
  epochs.add(order(40, {1, 2}), std::nullopt);
  const int64_t apart = epochs.find(Epoch(40))->begin;
  CHECK(apart > 1'000'000'000'000);
  CHECK(epochs.add(order(40, {1, 2}), std::nullopt) == 0);
  CHECK(epochs.add(order(40, {1, 2}), 103) == 103 - apart);
  CHECK(epochs.find(Epoch(40))->begin == 103);
}

TEST_CASE("what was seen is kept by position") {
  KnownEpochs epochs;
  epochs.add(order(0, {7, 8}), 100);
  epochs.add(order(1, {8, 7}), 102);
  epochs.mark_seen({Epoch(1), 1});
  CHECK_FALSE(epochs.seen(99));
  CHECK_FALSE(epochs.seen(102));
  CHECK(epochs.seen(103));
  CHECK_FALSE(epochs.seen(104));
  epochs.forget_seen();
  CHECK_FALSE(epochs.seen(103));
}
