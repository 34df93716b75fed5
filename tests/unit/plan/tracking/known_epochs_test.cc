#include "plan/tracking/known_epochs.h"

#include <memory>
#include <numeric>
#include <utility>
#include <vector>

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
  CHECK(epochs.position_of(Epoch(3), 101) == PlanPosition{Epoch(3), 1});
  CHECK(epochs.position_of(Epoch(3), 50) == PlanPosition{Epoch(3), 0});
  CHECK(epochs.position_of(Epoch(3), 103) == PlanPosition{Epoch(4), 0});
  CHECK(epochs.position_of(Epoch(4), 103) == PlanPosition{Epoch(4), 0});
  CHECK(epochs.position_of(Epoch(4), 110) == PlanPosition{Epoch(4), 2});
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

TEST_CASE("what was not seen is counted over the epochs") {
  KnownEpochs epochs;
  epochs.add(order(0, {7, 8, 9}), 100);
  epochs.add(order(1, {8, 7, 9}), 103);
  CHECK(epochs.unseen(0, 1000) == 6);
  CHECK(epochs.unseen(102, 105) == 3);
  epochs.mark_seen({Epoch(0), 2});
  epochs.mark_seen({Epoch(1), 2});
  CHECK(epochs.unseen(102, 105) == 2);
  CHECK(epochs.unseen(102, 102) == 0);
  CHECK(epochs.unseen(105, 102) == 0);
  CHECK(epochs.unseen(106, 200) == 0);
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

TEST_CASE("samples lie in file order if most are between their neighbours") {
  std::vector<uint32_t> samples(100);
  std::iota(samples.begin(), samples.end(), 0);
  KnownEpochs through;
  through.add(order(0, samples), 0);
  for (const uint32_t sample : {0U, 50U, 99U}) CHECK(through.in_file_order(std::vector{sample}));
  CHECK_FALSE(through.in_file_order(std::vector{100U}));  // of no epoch

  for (uint32_t& sample : samples) sample = sample * 37 % 100;  // steps of 37
  KnownEpochs shuffled;
  shuffled.add(order(0, samples), 0);
  CHECK_FALSE(shuffled.in_file_order(std::vector{50U}));
  // Of several samples the one that happens to be among its neighbours decides nothing.
  std::swap(samples[1], samples[50]);  // 37 and 50
  samples[0] = 49;
  samples[2] = 51;
  KnownEpochs chance;
  chance.add(order(0, samples), 0);
  CHECK(chance.in_file_order(std::vector{50U}));
  CHECK_FALSE(chance.in_file_order(std::vector{50U, 60U, 70U}));
  // One epoch of several is enough.
  std::iota(samples.begin(), samples.end(), 0);
  shuffled.add(order(1, samples), 100);
  CHECK(shuffled.in_file_order(std::vector{50U, 60U}));
}

TEST_CASE("ranks that take turns through the files leave them in order") {
  std::vector<uint32_t> every_eighth;
  for (uint32_t sample = 3; sample < 800; sample += 8) every_eighth.push_back(sample);
  KnownEpochs epochs;
  epochs.add(order(0, every_eighth), 0);
  CHECK(epochs.in_file_order(std::vector{400U, 401U, 402U, 403U, 404U}));
}
