// Datasets of some hundred samples: what strays hits the reader's band often, and that of the next epoch.
#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kSome = 400;
const LoaderModel::Loader kFourWorkers{1, 8, 4, 2};

// Of so many runs of three epochs with 5 % of strays those in which the plan was suspended.
uint32_t suspended_by_strays(uint32_t runs) {
  uint32_t suspended = 0;
  for (uint32_t seed = 1; seed <= runs; ++seed) {
    AccessSequence plan = plan_over(kSome, "batch=8 workers=4 seed=" + std::to_string(seed));
    std::mt19937 random(seed);
    MountModel mount(plan, kSome, {true, 64, 600});
    for (uint32_t epoch = 0; epoch < 3; ++epoch) {
      const Samples order = order_of(plan, epoch);
      LoaderModel(kSome, kFourWorkers, random).run([&](uint32_t position) {
        mount.open(order[position]);
        if (random() % 20 == 0) mount.open(random() % kSome);
        return true;
      });
    }
    suspended += mount.tracker.status().suspensions > 0 ? 1 : 0;
  }
  return suspended;
}

}  // namespace

TEST_CASE("stray accesses do not suspend the plan of a small dataset") {
  CHECK(suspended_by_strays(20) <= 5);
}

TEST_CASE("a sample that is opened once more does not move the reader to its next epoch") {
  AccessSequence plan = plan_over(kSome, "batch=8 workers=4 seed=1");
  MountModel mount(plan, kSome, {true, 64, 600});
  const Samples order = order_of(plan, 0);
  const Samples next = order_of(plan, 1);
  constexpr uint32_t kRead = kSome - 6;
  for (uint32_t position = 0; position < kRead; ++position) mount.open(order[position]);
  Samples begin;  // of the next epoch: what was read in this one, and not just now
  for (uint32_t position = 0; begin.size() < 3; ++position) {
    const auto end = order.begin() + kRead / 2;
    if (std::find(order.begin(), end, next[position]) != end) begin.push_back(next[position]);
  }
  SECTION("a few times among its own opens") {
    mount.open(begin[2]);
    mount.open(begin[0]);
    CHECK(mount.tracker.high_water() == kRead);
    mount.open(order[kRead]);
    CHECK(mount.tracker.high_water() == kRead + 1);
  }
  SECTION("but it may leave out the rest of the epoch") {
    for (const uint32_t sample : begin) mount.open(sample);
    CHECK(mount.tracker.high_water_epoch() == Epoch(1));
    for (uint32_t position = 0; position < kSome; ++position) mount.open(next[position]);
    CHECK(mount.tracker.high_water() == 2 * kSome);
  }
  CHECK(mount.tracker.status().out_of_order == 0);
  CHECK(mount.tracker.status().realignments + mount.tracker.status().suspensions == 0);
}

// np.load(mmap_mode=) does so.
TEST_CASE("a file that is opened three times in a row was read once") {
  const uint32_t samples = GENERATE(60U, 200U);
  const uint32_t workers = GENERATE(0U, 2U, 8U);
  const LoaderModel::Loader loader{1, 4, workers, 2};
  CAPTURE(samples, workers);
  AccessSequence plan = plan_over(samples, "batch=4 seed=1 workers=" + std::to_string(workers));
  std::mt19937 random(samples);
  MountModel mount(plan, samples, {true, 64, 600});
  for (uint32_t epoch = 0; epoch < 4; ++epoch) {
    const Samples order = order_of(plan, epoch);
    LoaderModel(samples, loader, random).run([&](uint32_t position) {
      for (int times = 0; times < 3; ++times) mount.open(order[position]);
      return true;
    });
  }
  const TrackerStatus status = mount.tracker.status();
  CHECK(status.suspensions + status.realignments == 0);
  CHECK(status.out_of_order == 0);
  // But for the last of an epoch, which may be the first of the next.
  CHECK(status.in_order + 8 >= 4 * samples);
  CHECK(status.in_order <= 4 * samples + 8);
}

TEST_CASE("of a reader that left between two epochs what it has opened since is kept") {
  AccessSequence plan = plan_over(kSome, "batch=1 seed=1");
  AccessSequence other = plan_over(kSome, "batch=1 seed=918273646");
  MountModel mount(plan, kSome, {true, 64, 600});
  for (const uint32_t sample : order_of(plan, 0)) mount.open(sample);
  const Samples order = order_of(other, 1);
  uint32_t opens = 0;
  while (opens < 200 && mount.tracker.state() != TrackerState::suspended) mount.open(order[opens++]);
  REQUIRE(mount.tracker.state() == TrackerState::suspended);
  const std::vector<Sighting> kept = mount.tracker.around_suspension();
  CHECK(kept.size() >= 8);
  for (const Sighting& seen : kept)
    CHECK(std::find(order.begin(), order.begin() + opens, seen.sample) != order.begin() + opens);
}

namespace {

/// A reader that is there before the order of its next epoch is made.
struct EarlyReader {
  explicit EarlyReader(uint32_t samples = kSome) : plan(plan_over(samples, "batch=8 seed=1")) {
    add_epoch(0);
    for (const uint32_t sample : order_of(plan, 0)) open(sample);
  }
  void add_epoch(uint32_t epoch) {
    auto sequence = std::make_shared<const EpochSequence>(plan.sequence(Epoch(epoch), NodeId(0)).value());
    const uint64_t begin = uint64_t{epoch} * sequence->length();
    tracker.add_epoch(std::make_shared<const SequencePositions>(std::move(sequence)), begin);
  }
  /// As of one of several plans.
  void open(uint32_t sample) {
    now += std::chrono::microseconds(10);
    const std::array samples{sample};
    if (tracker.offer(samples, Access::open, now) == Tracker::Verdict::out_of_order)
      tracker.observe(samples, Access::open, now);
  }

  AccessSequence plan;
  Tracker tracker{plan.reorder_window(), std::nullopt};
  TimePoint now{std::chrono::seconds(1)};
};

}  // namespace

// Of a short epoch what the next one begins with was the end of this one, too.
TEST_CASE("a reader that is in its next epoch before that is known is followed on") {
  const uint32_t samples = GENERATE(20U, 40U, 60U, 100U, kSome);
  const uint32_t early = std::min(samples / 2, 60U);
  CAPTURE(samples);
  EarlyReader reader(samples);
  const Samples next = order_of(reader.plan, 1);
  for (uint32_t position = 0; position < early; ++position) reader.open(next[position]);
  CHECK(reader.tracker.high_water() == samples);
  CHECK(reader.tracker.status().out_of_order == 0);
  reader.add_epoch(1);
  const TrackerStatus status = reader.tracker.status();
  CHECK(status.suspensions + status.realignments + status.out_of_order == 0);
  CHECK(status.in_order == samples + early);
  CHECK(reader.tracker.high_water() == samples + early);
}

TEST_CASE("a reader that goes elsewhere before its next epoch is known is noticed when that comes") {
  EarlyReader reader;
  AccessSequence other = plan_over(kSome, "batch=8 seed=2");
  for (const uint32_t sample : order_of(other, 1)) reader.open(sample);
  CHECK(reader.tracker.state() == TrackerState::following);
  reader.add_epoch(1);
  CHECK(reader.tracker.state() == TrackerState::suspended);
  CHECK(reader.tracker.status().out_of_order <= 2 * kSightings);  // no search for all of them
}

TEST_CASE("a reader that has opened much before its next epoch is known is thought to have left") {
  EarlyReader reader;
  AccessSequence other = plan_over(kSome, "batch=8 seed=2");
  for (uint32_t epoch = 1; epoch < 6; ++epoch) {
    for (const uint32_t sample : order_of(other, epoch)) reader.open(sample);
  }
  CHECK(reader.tracker.state() == TrackerState::suspended);
  // What waited was judged before what came later.
  reader.add_epoch(1);
  CHECK(reader.tracker.evidence().back().sample == order_of(other, 5).back());
}
