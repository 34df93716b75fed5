// Who reads a plan's samples when it has finished.
#include <string>

#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

/// A plan of two epochs, of which nothing was read yet. Every open is seen.
struct PlanOfTwo {
  explicit PlanOfTwo(uint32_t samples, const std::string& loader = "")
      : length(samples), plan(plan_over(samples, "seed=42 epochs=2" + loader)) {}
  void open(const std::string& order, uint32_t from, uint32_t end, uint32_t epoch = 0) {
    AccessSequence read = plan_over(length, order);
    const Samples samples = order_of(read, epoch);
    for (uint32_t position = from; position < end; ++position) mount.open(samples[position]);
  }

  const uint32_t length;
  AccessSequence plan;
  MountModel mount{plan, length, {true, 64, 600}, plan.last_epoch()};
};

/// One that was read to its end.
struct FinishedPlan : PlanOfTwo {
  static constexpr uint32_t kLength = 2000;

  explicit FinishedPlan(uint32_t samples = kLength, const std::string& loader = "")
      : PlanOfTwo(samples, loader) {
    for (const uint32_t epoch : {0U, 1U}) open("seed=42", 0, length, epoch);
    REQUIRE(mount.tracker.state() == TrackerState::finished);
    REQUIRE(!mount.tracker.is_left());
  }
};

// Of so few samples the workers may open any at any time.
constexpr uint32_t kFew = 250;
constexpr const char* kWorkers = " batch=16 workers=4";

}  // namespace

TEST_CASE("a finished plan is left by who reads its samples in another order, and shows as finished") {
  FinishedPlan finished;
  const Tracker& tracker = finished.mount.tracker;
  finished.open("seed=1000", 0, 8);
  CHECK(!tracker.is_left());
  CHECK(!tracker.wants_diagnosis());
  finished.open("seed=1000", 8, 32);
  CHECK(tracker.is_left());
  CHECK(tracker.wants_diagnosis());
  // More than there are samples, and a quarter again.
  finished.open("seed=1000", 32, FinishedPlan::kLength);
  finished.open("seed=2000", 0, FinishedPlan::kLength);
  CHECK(tracker.is_left());
  CHECK(!tracker.is_followed());
  CHECK(!tracker.left_for_good(FinishedPlan::kLength));
  CHECK(tracker.state() == TrackerState::finished);
  const TrackerStatus status = tracker.status();
  CHECK(status.state == TrackerState::finished);
  CHECK(follows(status));
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
  CHECK(status.high_water == PlanPosition{Epoch(1), FinishedPlan::kLength});
  REQUIRE(status.divergence);
  CHECK(status.divergence->at == PlanPosition{Epoch(1), FinishedPlan::kLength});
  CHECK(!status.divergence->expected);
}

TEST_CASE("a finished plan is left at its end, also where a stray came before its last sample") {
  PlanOfTwo read(FinishedPlan::kLength);
  const Tracker& tracker = read.mount.tracker;
  read.open("seed=42", 0, read.length);
  read.open("seed=42", 0, read.length - 1, 1);
  read.open("seed=42", 100, 101, 1);  // once more
  REQUIRE(tracker.status().out_of_order == 1);
  read.open("seed=42", read.length - 1, read.length, 1);
  REQUIRE(tracker.state() == TrackerState::finished);
  read.open("seed=1000", 0, 32);
  REQUIRE(tracker.is_left());
  const TrackerStatus status = tracker.status();
  CHECK(status.divergence->at == PlanPosition{Epoch(1), read.length});
  CHECK(!status.divergence->expected);
}

// Its workers may open 100 samples out of order.
TEST_CASE("an order that comes to the plan's last sample early is no more the plan's than before") {
  AccessSequence plan = plan_over(kFew, "seed=42 epochs=1 batch=20 workers=2");
  MountModel mount(plan, kFew, {true, 64, 600}, plan.last_epoch());
  const Samples order = order_of(plan, 0);
  for (const uint32_t position : {100U, 200U, kFew - 1}) mount.open(order[position]);
  REQUIRE(mount.tracker.state() == TrackerState::finished);
  for (uint32_t i = 0; i < 90; ++i) {
    mount.open(order[kFew - 2 - i]);
    if (i % 9 == 0) mount.open(order[i / 9]);
  }
  const TrackerStatus status = mount.tracker.status();
  REQUIRE(status.state == TrackerState::finished);
  CHECK(status.out_of_order == 10);
  CHECK(!follows(status));
}

TEST_CASE("a job that is started again after the plan's end is followed to the end, and left as any other") {
  const bool others_read = GENERATE(false, true);
  FinishedPlan finished;
  const Tracker& tracker = finished.mount.tracker;
  if (others_read) finished.open("seed=1000", 0, 200);
  REQUIRE(tracker.is_left() == others_read);
  finished.open("seed=42", 0, 100);
  CHECK(tracker.state() == TrackerState::following);
  CHECK(!tracker.is_left());
  CHECK(tracker.status().high_water == PlanPosition{Epoch(0), 100});
  CHECK(tracker.status().divergence->hint == "epoch 0 was read again after the plan's end");
  SECTION("to the end") {
    finished.open("seed=42", 100, FinishedPlan::kLength);
    finished.open("seed=42", 0, FinishedPlan::kLength, 1);
    CHECK(tracker.state() == TrackerState::finished);
    CHECK(!tracker.is_left());
  }
  SECTION("left") {
    finished.open("seed=1000", 200, 400);
    CHECK(tracker.state() == TrackerState::suspended);
    CHECK(tracker.status().suspensions == 1);
  }
}

TEST_CASE("a job that goes on in the middle of an epoch after the plan's end does not forget set_epoch") {
  const bool others_read = GENERATE(false, true);
  FinishedPlan finished;
  if (others_read) finished.open("seed=1000", 0, 200);
  finished.open("seed=42", 1000, 1100);
  const TrackerStatus status = finished.mount.tracker.status();
  CHECK(status.state == TrackerState::following);
  CHECK(status.high_water == PlanPosition{Epoch(0), 1100});
  REQUIRE(status.divergence);
  CHECK(status.divergence->hint == "epoch 0 was read again after the plan's end");
}

TEST_CASE("a finished plan whose workers may open all of its samples out of order is left, too") {
  FinishedPlan finished(kFew, kWorkers);
  const Tracker& tracker = finished.mount.tracker;
  finished.open("seed=42", kFew - 16, kFew, 1);  // its last batch once more
  CHECK(tracker.status().out_of_order == 0);
  finished.open("seed=1000", 0, 60);
  CHECK(tracker.is_left());
  CHECK(tracker.state() == TrackerState::finished);
}

TEST_CASE("what is opened again after the plan's last sample tells nothing while a worker is behind") {
  PlanOfTwo read(kFew, kWorkers);
  const Tracker& tracker = read.mount.tracker;
  read.open("seed=42", 0, kFew);
  read.open("seed=42", 0, 200, 1);
  read.open("seed=42", 216, kFew, 1);
  REQUIRE(tracker.state() == TrackerState::finished);
  read.open("seed=42", 0, 100, 1);
  CHECK(tracker.status().out_of_order == 0);
  read.open("seed=42", 200, 216, 1);
  CHECK(tracker.status().in_order == 2 * kFew);
  read.open("seed=1000", 0, 60);
  CHECK(tracker.is_left());
}
