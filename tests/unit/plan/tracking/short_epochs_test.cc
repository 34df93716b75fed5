// Epochs that are shorter than the gap between sentinels, or than what the workers have in flight.
#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

TEST_CASE("epochs of one or two samples are followed, too") {
  const uint32_t samples = GENERATE(1U, 2U, 3U);
  AccessSequence plan = plan_over(samples, "seed=42 epochs=6");
  Tracker tracker(plan.reorder_window(), plan.last_epoch());
  const SteadyClock clock;
  const auto add = [&](uint32_t epoch) {
    auto sequence = std::make_shared<const EpochSequence>(*plan.sequence(Epoch(epoch), NodeId(0)));
    tracker.add_epoch(std::make_shared<const SequencePositions>(std::move(sequence)), epoch * samples);
  };
  add(0);
  for (uint32_t epoch = 0; epoch < 6; ++epoch) {
    if (epoch + 1 < 6) add(epoch + 1);
    for (const uint32_t sample : order_of(plan, epoch))
      CHECK(tracker.observe(Samples{sample}, Access::open, clock.now()) == Tracker::Verdict::in_order);
  }
  CHECK(tracker.state() == TrackerState::finished);
  CHECK(tracker.status().high_water == PlanPosition{Epoch(5), samples});
}

// A READ of the next epoch must not count as one more piece of this epoch's.
TEST_CASE("short epochs are followed by their READs alone") {
  const uint32_t samples = GENERATE(1U, 2U, 3U, 4U, 6U, 20U, 33U, 64U);
  const int pieces = GENERATE(1, 3);
  CAPTURE(samples, pieces);
  AccessSequence plan = plan_over(samples, "seed=42 epochs=6");
  Tracker tracker(plan.reorder_window(), plan.last_epoch());
  const SteadyClock clock;
  for (uint32_t epoch = 0; epoch < 6; ++epoch) {
    tracker.add_epoch(std::make_shared<const SequencePositions>(
                          std::make_shared<const EpochSequence>(*plan.sequence(Epoch(epoch), NodeId(0)))),
                      epoch * samples);
  }
  for (uint32_t epoch = 0; epoch < 6; ++epoch) {
    for (const uint32_t sample : order_of(plan, epoch)) {
      for (int piece = 0; piece < pieces; ++piece)
        CHECK(tracker.observe(Samples{sample}, Access::read, clock.now()) != Tracker::Verdict::out_of_order);
    }
  }
  CHECK(tracker.state() == TrackerState::finished);
}

// Where only one of so many opens is seen, the newest sightings are of several epochs.
TEST_CASE("epochs in the same order are told apart by a few sentinels of each") {
  const uint32_t gap = GENERATE(9U, 11U, 30U);
  AccessSequence plan = plan_over(90, "sampler=torch.sequential epochs=6 batch=8 workers=2");
  Tracker tracker(plan.reorder_window(), plan.last_epoch());
  const SteadyClock clock;
  const auto add = [&](uint32_t epoch) {
    tracker.add_epoch(std::make_shared<const SequencePositions>(
                          std::make_shared<const EpochSequence>(*plan.sequence(Epoch(epoch), NodeId(0)))),
                      epoch * 90);
  };
  add(0);
  for (uint32_t epoch = 0; epoch < 6; ++epoch) {
    if (epoch + 1 < 6) add(epoch + 1);
    tracker.set_pushed(std::min(epoch * 90 + 179, 6 * 90U), gap);
    for (const uint32_t sample : order_of(plan, epoch)) {
      if (sample % gap == 0 || sample == 89)
        CHECK(tracker.observe(Samples{sample}, Access::read, clock.now()) == Tracker::Verdict::in_order);
    }
    CHECK(tracker.high_water() == (epoch + 1) * 90);
  }
  CHECK(tracker.state() == TrackerState::finished);
}

// As many samples are in flight as most of an epoch has: a READ comes when others were opened far ahead of
// it.
TEST_CASE("workers that hold most of an epoch are followed") {
  const uint32_t samples = GENERATE(40U, 73U, 90U, 146U);
  const std::string sampler = GENERATE("torch.sequential", "torch.random seed=42");
  const LoaderModel::Loader loader{1, 8, 4, 2};
  CAPTURE(samples, sampler);
  std::mt19937 random(samples);
  for (int trial = 0; trial < 20; ++trial) {
    AccessSequence plan = plan_over(samples, "sampler=" + sampler + " epochs=4 batch=8 workers=4");
    Tracker tracker(plan.reorder_window(), plan.last_epoch());
    TimePoint now{std::chrono::seconds(1)};
    const auto see = [&](uint32_t sample, Access kind) {
      CHECK(tracker.observe(Samples{sample}, kind, now += std::chrono::milliseconds(1)) !=
            Tracker::Verdict::out_of_order);
    };
    std::array<std::optional<uint32_t>, 4> opened;  // by each worker, and not read yet
    const auto read = [&](std::optional<uint32_t>& sample) {
      if (sample) see(*sample, Access::read);
      sample.reset();
    };
    for (uint32_t epoch = 0; epoch < 4; ++epoch) {
      for (const uint32_t known : {epoch, epoch + 1}) {
        if (plan.has_epoch(Epoch(known))) {
          tracker.add_epoch(std::make_shared<const SequencePositions>(std::make_shared<const EpochSequence>(
                                *plan.sequence(Epoch(known), NodeId(0)))),
                            known * samples);
        }
      }
      const Samples order = order_of(plan, epoch);
      LoaderModel(samples, loader, random).run([&](uint32_t position) {
        std::optional<uint32_t>& worker = opened[position / loader.batch % loader.workers];
        read(worker);
        see(order[position], Access::open);
        worker = order[position];
        return true;
      });
      for (std::optional<uint32_t>& worker : opened) read(worker);
      CHECK(tracker.high_water() == (epoch + 1) * samples);
    }
    CHECK(tracker.state() == TrackerState::finished);
    CHECK(tracker.status().in_order == 4 * samples);
    CHECK(tracker.status().suspensions == 0);
  }
}

// All that it opens in an epoch may be too little to tell by, and in the next one it opens the same.
TEST_CASE("a reader that left its short epochs is found when it comes back") {
  const uint32_t samples = GENERATE(40U, 60U);
  const uint32_t seed = GENERATE(1U, 2U, 3U, 4U);
  CAPTURE(samples, seed);
  AccessSequence plan = plan_over(samples, "batch=1 seed=" + std::to_string(seed));
  MountModel mount(plan, samples, {true, 64, 600});
  const auto read = [&](uint32_t epoch) {
    for (const uint32_t sample : order_of(plan, epoch)) mount.open(sample);
  };
  read(0);
  read(1);
  REQUIRE(mount.tracker.state() == TrackerState::following);
  for (int times = 0; times < 20 && mount.tracker.state() != TrackerState::suspended; ++times) {
    for (uint32_t sample = 0; sample < samples; ++sample) mount.open(sample);
  }
  REQUIRE(mount.tracker.state() == TrackerState::suspended);
  for (const uint32_t epoch : {2U, 3U}) mount.add_epoch(epoch);
  read(2);
  read(3);
  CHECK(mount.tracker.state() == TrackerState::following);
  CHECK(mount.tracker.status().high_water == PlanPosition{Epoch(4), 0});
}
