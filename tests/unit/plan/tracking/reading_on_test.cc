// READs that go on where the last one ended, of samples that are records of one file.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "plan/tracking/rank_trackers.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kRecords = 4000;

// The mount of a plan of records of which nothing was pushed: all READs are seen.
class Records {
 public:
  explicit Records(const std::string& plan_text)
      : plan(plan_over(kRecords, "seed=42 epochs=2 " + plan_text)), ranks(plan.spec().ranks_per_node) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      trackers.push_back(std::make_unique<Tracker>(plan.reader_slack(), plan.last_epoch()));
      for (const uint32_t epoch : {0, 1}) {
        const Samples samples = order(rank, epoch);
        trackers.back()->add_epoch(std::make_shared<const SequencePositions>(
                                       std::make_shared<EpochSequence>(Epoch(epoch), samples, 0)),
                                   epoch * samples.size());
      }
    }
    std::vector<Tracker*> all;
    for (const auto& tracker : trackers) all.push_back(tracker.get());
    followed = std::make_unique<RankTrackers>(all);
  }

  Samples order(size_t rank, uint32_t epoch) {
    const auto made = plan.reader_sequence(*plan.order(Epoch(epoch)), Epoch(epoch), NodeId(0), rank);
    return {made.samples().begin(), made.samples().end()};
  }

  Tracker::Verdict read(uint32_t sample, Access kind = Access::read, uint64_t thread = 1) {
    now += std::chrono::milliseconds(1);
    return followed->observe(ThreadId(thread), Samples{sample % kRecords}, kind, now).verdict;
  }

  AccessSequence plan;
  const size_t ranks;
  std::vector<std::unique_ptr<Tracker>> trackers;
  std::unique_ptr<RankTrackers> followed;
  TimePoint now{std::chrono::seconds(1)};
};

}  // namespace

TEST_CASE("what is read ahead of records at random is of no effect") {
  const size_t ranks = GENERATE(1U, 2U, 4U);
  const uint32_t ahead = GENERATE(1U, 10U);
  CAPTURE(ranks, ahead);
  Records records("world=" + std::to_string(ranks) + " ranks_per_node=" + std::to_string(ranks));
  std::vector<Samples> orders;
  for (size_t rank = 0; rank < ranks; ++rank) {
    orders.push_back(records.order(rank, 0));
    const Samples next = records.order(rank, 1);
    orders.back().insert(orders.back().end(), next.begin(), next.end());
  }
  for (size_t at = 0; at < orders[0].size(); ++at) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      records.read(orders[rank][at], Access::read, rank + 1);
      for (uint32_t k = 1; k <= ahead; ++k) records.read(orders[rank][at] + k, Access::read_on, rank + 1);
    }
    for (size_t rank = 0; rank < ranks; ++rank) {
      const uint64_t high_water = records.trackers[rank]->high_water();
      REQUIRE(high_water >= at + 1);
      REQUIRE(high_water <= at + 1 + 2 * records.trackers[rank]->reorder_window() + 1);
    }
  }
  for (const auto& tracker : records.trackers) {
    const TrackerStatus status = tracker->status();
    CHECK(status.state == TrackerState::finished);
    // One record in 10^4 lies between its neighbours by chance.
    CHECK(status.out_of_order <= 3 * ahead);
    CHECK(status.realignments == 0);
    CHECK(status.passed == orders[0].size());
  }
}

TEST_CASE("threads of no known rank that read on are no strangers") {
  Records records("world=2 ranks_per_node=2");
  const Samples first = records.order(0, 0);
  for (size_t at = 0; at < 100; ++at) {
    records.read(first[at]);
    for (uint64_t thread = 10; thread < 14; ++thread)
      CHECK(records.read(first[at] + 1, Access::read_on, thread) == Tracker::Verdict::repeated);
  }
  CHECK(records.trackers[0]->status().out_of_order == 0);
  CHECK(records.trackers[1]->status().out_of_order == 0);
  CHECK(records.trackers[1]->state() == TrackerState::waiting);
  // So a true stray of one counts against the rank that is reading, and not against one that began anew.
  const Samples others = records.order(1, 1);
  const auto of_both = std::find_if(others.begin() + 1000, others.end(), [&](uint32_t sample) {
    return std::find(first.begin() + 1000, first.end(), sample) != first.end();
  });
  CHECK(records.read(*of_both, Access::read, 20) == Tracker::Verdict::out_of_order);
  CHECK(records.trackers[0]->status().out_of_order == 1);
}

TEST_CASE("in an order that goes through the file the next record may be read on to") {
  Records records("shuffle=false");
  records.read(0);
  for (uint32_t sample = 1; sample < kRecords; ++sample)
    REQUIRE(records.read(sample, Access::read_on) == Tracker::Verdict::in_order);
  CHECK(records.trackers[0]->high_water() == kRecords);
  // Elsewhere in the file it is not in order.
  for (uint32_t sample = 2000; sample < 2100; ++sample) records.read(sample, Access::read_on);
  CHECK(records.trackers[0]->status().out_of_order > 0);
}

TEST_CASE("a reader that goes through the file has left a shuffled plan for good") {
  Records records("");
  Tracker& tracker = *records.trackers[0];
  CHECK_FALSE(tracker.left_for_good(kRecords));
  for (uint32_t sample = 0; sample < 100; ++sample) records.read(sample, Access::read_on);
  CHECK(tracker.state() == TrackerState::waiting);
  for (uint32_t sample = 100; sample < 200; ++sample) records.read(sample, Access::read_through);
  CHECK(tracker.state() == TrackerState::suspended);
  CHECK(tracker.left_for_good(kRecords));
  // Found again, and lost once more by one who only looks at the samples.
  for (const uint32_t sample : records.order(0, 0)) records.read(sample);
  REQUIRE(tracker.state() == TrackerState::following);
  CHECK_FALSE(tracker.left_for_good(kRecords));
  for (uint32_t sample = 0; sample < kRecords; ++sample) {
    records.read(sample);
    records.read(sample, Access::read_on);
  }
  REQUIRE(tracker.state() == TrackerState::suspended);
  CHECK_FALSE(tracker.left_for_good(kRecords));
}

TEST_CASE("whoever is seen at more samples than there are does not look for them any more") {
  Records records("");
  Tracker& tracker = *records.trackers[0];
  std::mt19937 random(5);
  for (uint32_t n = 0; n < kRecords; ++n) records.read(random());
  REQUIRE(tracker.state() == TrackerState::suspended);
  CHECK_FALSE(tracker.left_for_good(kRecords));
  for (uint32_t n = 0; n < kRecords; ++n) records.read(random());
  CHECK(tracker.left_for_good(kRecords));
}
