#include "plan/tracking/tracker.h"

#include <numeric>
#include <set>

#include "plan/tracking/diagnosis.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

using Sight = MountModel::Sight;
using Loader = LoaderModel::Loader;

constexpr uint32_t kSamples = 20000;
const Sight kOpens{true, 64, 600};
const Sight kSentinels{false, 64, 600};
const Sight kNothingPushed{false, 64, 0};

// What one open says beside the order.
using After = std::function<bool(uint32_t position, uint32_t prefix)>;

// Reads samples [from, ...) of a node's order as a DataLoader of the plan does.
void read_order(MountModel& mount, const Samples& order, Loader loader, std::mt19937& random,
                uint32_t from = 0, const After& after = {}) {
  LoaderModel model(static_cast<uint32_t>(order.size()) - from, loader, random);
  model.run([&](uint32_t position) {
    mount.open(order[from + position]);
    return !after || after(from + position, from + model.prefix());
  });
}

// Stops after so many opens.
After stop_after(uint32_t opens) {
  return [left = opens](uint32_t, uint32_t) mutable { return --left > 0; };
}

std::string plan_text(const Loader& loader, const std::string& more = "seed=42 world=8") {
  return more + " ranks_per_node=" + std::to_string(loader.ranks) + " batch=" + std::to_string(loader.batch) +
         " workers=" + std::to_string(loader.workers) + " prefetch_factor=" + std::to_string(loader.prefetch);
}

uint32_t nodes_of(const Loader& loader) {
  return 8 / loader.ranks;
}

// Opens from where the reader left the plan until the tracker says so; 0 if it never does in 200 opens.
uint64_t opens_until_noticed(MountModel& mount, const Samples& order, Loader loader, std::mt19937& random,
                             uint32_t from = 0) {
  const TrackerStatus before = mount.tracker.status();
  const uint64_t start = mount.opens;
  uint64_t noticed = 0;
  read_order(mount, order, loader, random, from, [&](uint32_t, uint32_t) {
    const TrackerStatus now = mount.tracker.status();
    if (now.suspensions + now.realignments == before.suspensions + before.realignments)
      return mount.opens < start + 200;
    noticed = mount.opens - start;
    return false;
  });
  return noticed;
}

SequenceMaker maker(uint32_t n) {
  return [n](const PlanSpec& spec, Epoch epoch, NodeId node) -> Result<EpochSequence> {
    auto sampler = make_plan_sampler(spec, n, DatasetSource(), nullptr);
    if (!sampler) return sampler.error();
    auto sequence = AccessSequence::make(spec, std::move(*sampler));
    if (!sequence) return sequence.error();
    return sequence->sequence(epoch, node);
  };
}

Diagnosis diagnosis(const MountModel& mount, const AccessSequence& plan, uint32_t n) {
  return diagnose(mount.tracker.evidence(), plan.spec(), mount.tracker.status().divergence->at, NodeId(0),
                  plan.reorder_window(), maker(n));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

const std::vector<Loader> kLoaders{{1, 1, 0, 2}, {1, 8, 0, 2}, {1, 8, 2, 2}, {2, 8, 2, 2}, {2, 8, 4, 2}};

}  // namespace

TEST_CASE("a reader is followed over its epochs") {
  for (const Loader& loader : kLoaders) {
    for (const Sight& sight : {kOpens, kSentinels, kNothingPushed}) {
      AccessSequence plan = plan_over(kSamples, plan_text(loader) + " epochs=3", nodes_of(loader));
      std::mt19937 random(7);
      MountModel mount(plan, kSamples, sight, Epoch(2));
      CHECK(mount.tracker.state() == TrackerState::waiting);
      INFO("ranks=" << loader.ranks << " workers=" << loader.workers << " opens=" << sight.opens
                    << " window=" << sight.window);
      for (uint32_t epoch = 0; epoch < 3; ++epoch) read_order(mount, order_of(plan, epoch), loader, random);
      const TrackerStatus status = mount.tracker.status();
      CHECK(status.state == TrackerState::finished);
      CHECK(status.out_of_order == 0);
      CHECK(!status.divergence);
      CHECK(!status.first_difference);
      CHECK(status.longest_stray <
            (sight.opens ? plan.reorder_window() + 10 : 2 * (plan.reorder_window() + sight.gap)));
      const uint64_t total = 3 * order_of(plan, 0).size();
      CHECK(status.passed == total);
      if (sight.opens || sight.window == 0) {
        CHECK(status.in_order == total);
      } else {
        // What is pushed is seen by its sentinels, one in 64 (Sight::gap), and what is read before that is
        // seen whole. 70 is a margin of a tenth.
        CHECK(status.in_order < total / 10);
        CHECK(status.in_order >= total / 70);
      }
      CHECK(status.high_water == PlanPosition{Epoch(2), static_cast<uint32_t>(total / 3)});
      CHECK(status.samples_per_second == Approx(1000).epsilon(0.5));
    }
  }
}

TEST_CASE("position never passes what was opened, nor stays far behind") {
  std::mt19937 random(20240607);
  for (int trial = 0; trial < 60; ++trial) {
    Loader loader;
    loader.ranks = 1U << random() % 3;
    loader.batch = 1 + random() % 24;
    loader.workers = random() % 5;
    loader.prefetch = 1 + random() % 3;
    Sight sight;
    sight.opens = random() % 2 == 0;
    sight.gap = 5 + random() % 60;
    sight.window = random() % 5 == 0 ? 0 : 100 + random() % 900;
    // A node's share is at least twice the window: what is pushed once for two epochs is no sentinel in both.
    const uint32_t n = 8 / loader.ranks * (2 * sight.window + 1000 + random() % 8000);
    const std::string text = plan_text(loader, "seed=" + std::to_string(random() % 1000) + " world=8");
    INFO("n=" << n << " " << text << " opens=" << sight.opens << " gap=" << sight.gap
              << " window=" << sight.window);
    AccessSequence plan = plan_over(n, text, nodes_of(loader));
    MountModel mount(plan, n, sight);
    const auto length = static_cast<int64_t>(order_of(plan, 0).size());
    int64_t furthest_ahead = INT64_MIN;
    int64_t furthest_behind = INT64_MIN;
    bool suspended = false;
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      read_order(mount, order_of(plan, epoch), loader, random, 0, [&](uint32_t, uint32_t prefix) {
        const PlanPosition at = mount.tracker.status().position;
        const int64_t said = at.epoch.value * length + at.position;
        const int64_t real = epoch * length + prefix;
        furthest_ahead = std::max(furthest_ahead, said - real);
        furthest_behind = std::max(furthest_behind, real - said);
        suspended = suspended || mount.tracker.state() == TrackerState::suspended;
        return true;
      });
    }
    CHECK(!suspended);
    CHECK(mount.tracker.status().realignments == 0);
    CHECK(mount.tracker.status().out_of_order == 0);
    CHECK(furthest_ahead <= 0);
    CHECK(furthest_behind <= static_cast<int64_t>(2 * plan.reorder_window() + 4 * sight.gap));
  }
}

TEST_CASE("stray accesses disturb nothing") {
  for (const Loader& loader : kLoaders) {
    for (const Sight& sight : {kOpens, kSentinels}) {
      AccessSequence plan =
          plan_over(kSamples, plan_text(loader, "seed=42 world=" + std::to_string(loader.ranks)), 1);
      std::mt19937 random(11);
      MountModel mount(plan, kSamples, sight);
      INFO("ranks=" << loader.ranks << " workers=" << loader.workers << " opens=" << sight.opens);
      for (uint32_t epoch = 0; epoch < 3; ++epoch) {
        read_order(mount, order_of(plan, epoch), loader, random, 0, [&](uint32_t, uint32_t) {
          if (random() % 20 == 0) mount.open(random() % kSamples);
          return true;
        });
      }
      const TrackerStatus status = mount.tracker.status();
      CHECK(status.suspensions == 0);
      CHECK(status.realignments == 0);
      CHECK(status.out_of_order > 0);
      CHECK(status.first_difference);
      CHECK(status.position.epoch == Epoch(2));
      CHECK(status.position.position + 3 * plan.reorder_window() > kSamples - 10 * sight.gap);
    }
  }
}

TEST_CASE("somebody reads a folder in order meanwhile") {
  const Loader loader{1, 8, 2, 2};
  AccessSequence plan = plan_over(kSamples, plan_text(loader, "seed=3"));
  std::mt19937 random(5);
  MountModel mount(plan, kSamples, kOpens);
  uint32_t other = 0;
  read_order(mount, order_of(plan, 0), loader, random, 0, [&](uint32_t position, uint32_t) {
    if (position > 1000 && position % 5 == 0 && other < 300) mount.open(other++);
    return true;
  });
  CHECK(other == 300);
  CHECK(mount.tracker.status().suspensions == 0);
  CHECK(mount.tracker.status().realignments == 0);
}

TEST_CASE("a reader that goes elsewhere in the plan is found again") {
  for (const Loader& loader : kLoaders) {
    for (const Sight& sight : {kOpens, kSentinels}) {
      INFO("ranks=" << loader.ranks << " workers=" << loader.workers << " opens=" << sight.opens);
      AccessSequence plan =
          plan_over(kSamples, plan_text(loader, "seed=42 world=" + std::to_string(loader.ranks)));
      std::mt19937 random(13);
      const auto noticed = [&](uint32_t read, uint32_t epoch, uint32_t from, const char* hint) {
        MountModel mount(plan, kSamples, sight);
        if (read > 0) read_order(mount, order_of(plan, 0), loader, random, 0, stop_after(read));
        CHECK(mount.tracker.status().realignments == 0);
        const uint64_t opens = opens_until_noticed(mount, order_of(plan, epoch), loader, random, from);
        CHECK(opens > 0);
        CHECK(opens <= 64);
        const TrackerStatus status = mount.tracker.status();
        REQUIRE(status.divergence);
        CHECK(status.state == TrackerState::following);
        REQUIRE(status.divergence->found);
        CHECK(status.divergence->found->epoch == Epoch(epoch));
        CHECK(status.high_water.position >= from);
        CHECK(status.high_water.position <= from + opens + plan.reorder_window());
        // What it left out nobody waits for.
        CHECK((from == 0 || mount.tracker.opened(mount.absolute({Epoch(epoch), from - 1}))));
        CHECK_FALSE(mount.tracker.opened(mount.tracker.high_water()));
        INFO(status.divergence->hint);
        CHECK(contains(status.divergence->hint, hint));
      };
      noticed(5000, 0, 12000, "skipped ahead within epoch 0");
      noticed(5000, 0, 0, "epoch 0 was restarted");
      noticed(9000, 0, 4000, "went back");
      noticed(5000, 1, 0, "epoch 1 began before the end of epoch 0");
      noticed(0, 0, 7000, "started at epoch 0");
      noticed(0, 1, 0, "started at epoch 1");
    }
  }
}

TEST_CASE("the reader goes on after it was found") {
  const Loader loader{2, 8, 2, 2};
  AccessSequence plan = plan_over(kSamples, plan_text(loader, "seed=1 world=2"));
  std::mt19937 random(17);
  MountModel mount(plan, kSamples, kSentinels);
  read_order(mount, order_of(plan, 0), loader, random, 0, stop_after(3000));
  read_order(mount, order_of(plan, 0), loader, random, 6000);  // skips
  CHECK(mount.tracker.status().realignments == 1);
  read_order(mount, order_of(plan, 1), loader, random, 0, stop_after(8000));
  CHECK(mount.tracker.status().realignments == 1);
  read_order(mount, order_of(plan, 1), loader, random);  // begins again
  CHECK(mount.tracker.status().realignments == 2);
  read_order(mount, order_of(plan, 2), loader, random);
  const TrackerStatus status = mount.tracker.status();
  CHECK(status.realignments == 2);
  CHECK(status.suspensions == 0);
  CHECK(status.high_water == PlanPosition{Epoch(3), 0});
}

TEST_CASE("a wrong order suspends the plan, and the hint says which it is") {
  struct Wrong {
    const char* text;
    uint32_t epoch;
    const char* hint;
  };
  const Loader loader{2, 4, 2, 2};
  const std::string right = plan_text(loader, "seed=42 world=8");
  const std::vector<Wrong> wrongs{
      {"seed=7 world=8", 0, "matches no known order"},
      {"seed=42 world=8", 3, "matches epoch 3 (now in epoch 0): is set_epoch called?"},
      {"shuffle=false world=8", 0, "matches sequential order: is the sampler shuffling?"},
      {"seed=52 world=8", 0, "matches no known order"},
      {"seed=1 world=8", 0, "matches seed=1 instead of 42"},
  };
  for (const Wrong& wrong : wrongs) {
    for (const Sight& sight : {kOpens, kSentinels, kNothingPushed}) {
      for (const uint32_t before : {0U, 2000U}) {
        INFO(wrong.text << " epoch=" << wrong.epoch << " opens=" << sight.opens << " window=" << sight.window
                        << " before=" << before);
        constexpr uint32_t kMany = 100000;
        AccessSequence plan = plan_over(kMany, right, 4);
        AccessSequence real = plan_over(kMany, plan_text(loader, wrong.text), 4);
        std::mt19937 random(19);
        MountModel mount(plan, kMany, sight);
        if (before > 0) read_order(mount, order_of(plan, 0), loader, random, 0, stop_after(before));
        const uint64_t opens = opens_until_noticed(mount, order_of(real, wrong.epoch), loader, random);
        CHECK(opens > 0);
        CHECK(opens <= 64);
        const TrackerStatus status = mount.tracker.status();
        CHECK(status.state == TrackerState::suspended);
        REQUIRE(status.divergence);
        CHECK(!status.divergence->found);
        CHECK(status.divergence->at.epoch == Epoch(0));
        CHECK(status.divergence->expected == order_of(plan, 0)[status.divergence->at.position]);
        if (before > 0) CHECK(status.divergence->at.position + plan.reorder_window() + 70 > before);
        CHECK(contains(diagnosis(mount, plan, kMany).hint, wrong.hint));
      }
    }
  }
}

// The band in which an open may be the reader's is a quarter of the epoch, and wider when ranks seem to
// drift.
TEST_CASE("a wrong order of few samples is noticed as soon where every open is seen") {
  constexpr uint32_t kFew = 600;
  const Loader loader{1, 8, 2, 2};
  AccessSequence plan = plan_over(kFew, "seed=42 batch=8 workers=2");
  uint32_t astray = 0;  // what is said of these is of another epoch than the reader's
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    AccessSequence real = plan_over(kFew, "batch=8 workers=2 seed=" + std::to_string(100 + seed));
    std::mt19937 random(seed);
    MountModel mount(plan, kFew, kOpens);
    const uint64_t opens = opens_until_noticed(mount, order_of(real, 0), loader, random);
    INFO("seed " << seed << " state " << static_cast<int>(mount.tracker.state()) << " in order "
                 << mount.tracker.status().in_order << " opens " << opens);
    CHECK(opens > 0);
    CHECK(opens <= 64);
    REQUIRE(mount.tracker.state() == TrackerState::suspended);
    if (mount.tracker.status().divergence->at.epoch != Epoch(0)) ++astray;
  }
  CHECK(astray <= 2);
}

TEST_CASE("the first opens of a reader that never followed the plan are kept, whatever it opens later") {
  const Loader loader{2, 4, 2, 2};
  constexpr uint32_t kMany = 100000;
  AccessSequence plan = plan_over(kMany, plan_text(loader, "seed=42 world=8"), 4);
  AccessSequence real = plan_over(kMany, plan_text(loader, "seed=7 world=8"), 4);
  const Samples order = order_of(real, 0);
  MountModel mount(plan, kMany, kOpens);
  const auto open_all = [&](uint32_t from, uint32_t end) {
    for (uint32_t position = from; position < end; ++position) mount.open(order[position]);
  };
  uint32_t opens = 0;
  while (opens < 64 && mount.tracker.state() != TrackerState::suspended) open_all(opens, opens + 1), ++opens;
  REQUIRE(mount.tracker.state() == TrackerState::suspended);
  open_all(opens, 500);
  Samples kept;
  for (const Sighting& sighting : mount.tracker.around_suspension()) kept.push_back(sighting.sample);
  CHECK(kept == Samples(order.begin(), order.begin() + kSightings));
}

TEST_CASE("half the world size, and twice") {
  const Loader loader{2, 4, 2, 2};
  constexpr uint32_t kMany = 100000;
  AccessSequence plan = plan_over(kMany, plan_text(loader), 4);
  const auto check = [&](uint32_t world, const Sight& sight, uint64_t most) {
    INFO("world=" << world << " opens=" << sight.opens << " window=" << sight.window);
    AccessSequence real =
        plan_over(kMany, plan_text(loader, "seed=42 world=" + std::to_string(world)), world / loader.ranks);
    std::mt19937 random(43);
    MountModel mount(plan, kMany, sight);
    const uint64_t opens = opens_until_noticed(mount, order_of(real, 0), loader, random);
    CHECK(opens > 0);
    CHECK(opens <= most);
    CHECK(mount.tracker.state() == TrackerState::suspended);
    CHECK(mount.tracker.wants_diagnosis());
    CHECK(mount.tracker.set_hint(diagnosis(mount, plan, kMany).hint));
    CHECK(!mount.tracker.wants_diagnosis());
    // It stays so: half of the samples in common are not the plan's order.
    read_order(mount, order_of(real, 0), loader, random, 1000, stop_after(1000));
    CHECK(mount.tracker.status().suspensions <= 2);
    CHECK(mount.tracker.state() == TrackerState::suspended);
    CHECK(mount.tracker.wants_diagnosis());  // once more, since the first one came early
    return diagnosis(mount, plan, kMany).hint;
  };
  CHECK(check(4, kOpens, 64) == "matches world=4 instead of 8 (ranks 0 to 1 here)");
  CHECK(check(4, kNothingPushed, 100) == "matches world=4 instead of 8 (ranks 0 to 1 here)");
  // Half of what it reads is pushed for it, unseen, until the plan is suspended: check() has read on.
  CHECK(check(4, kSentinels, 100) == "matches world=4 instead of 8 (ranks 0 to 1 here)");
  // All that it reads is in the plan; what it leaves out is missed only after the reorder window.
  CHECK(check(16, kOpens, 64 + 2 * plan.reorder_window()) ==
        "matches world=16 instead of 8 (ranks 0 to 1 here)");
}

TEST_CASE("one rank of a smaller world, and another node's ranks") {
  const Loader one{1, 4, 0, 2};
  constexpr uint32_t kMany = 50000;
  AccessSequence plan = plan_over(kMany, plan_text(one, "seed=42 world=8"), 8);
  AccessSequence whole = plan_over(kMany, "seed=42 world=8 ranks_per_node=1 batch=4", 8);
  std::mt19937 random(23);
  const auto hint = [&](const Samples& order) {
    MountModel mount(plan, kMany, kOpens);
    CHECK(opens_until_noticed(mount, order, one, random) > 0);
    return diagnosis(mount, plan, kMany).hint;
  };
  AccessSequence four = plan_over(kMany, "seed=42 world=4 ranks_per_node=1 batch=4", 4);
  CHECK(hint(four.rank_samples(Epoch(0), TrainingRank(2)).value()) ==
        "matches world=4 instead of 8 (rank 2 here)");
  CHECK(hint(whole.rank_samples(Epoch(0), TrainingRank(5)).value()) ==
        "matches rank 5 instead of 0: is this node another one of the job?");
}

TEST_CASE("other settings of the same sampler") {
  const Loader loader{1, 4, 2, 2};
  const auto hint = [&](const std::string& planned, const std::string& real, uint32_t epoch) {
    AccessSequence plan = plan_over(kSamples, plan_text(loader, planned));
    AccessSequence read = plan_over(kSamples, plan_text(loader, real));
    std::mt19937 random(29);
    MountModel mount(plan, kSamples, kOpens);
    for (uint32_t e = 0; e < epoch; ++e) read_order(mount, order_of(plan, e), loader, random);
    CHECK(opens_until_noticed(mount, order_of(read, epoch), loader, random) > 0);
    CHECK(mount.tracker.status().divergence->at.epoch == Epoch(epoch));
    const std::string found = diagnosis(mount, plan, kSamples).hint;
    UNSCOPED_INFO(found);
    return found;
  };
  CHECK(
      contains(hint("sampler=torch.random seed=1", "sampler=torch.random seed=1 persistent_workers=true", 1),
               "persistent_workers=true"));
  CHECK(contains(hint("sampler=numpy.default_rng seed=1", "sampler=numpy.default_rng seed=1 reseed=epoch", 1),
                 "reseed=epoch"));
  CHECK(contains(hint("sampler=torch.random seed=9", "sampler=torch.random seed=10", 0),
                 "seed=10 instead of 9"));
}

TEST_CASE("a script without set_epoch reads the first epoch again and again") {
  const Loader loader{1, 8, 2, 2};
  for (const Sight& sight : {kOpens, kSentinels}) {
    AccessSequence plan = plan_over(kSamples, plan_text(loader, "seed=42"));
    std::mt19937 random(31);
    MountModel mount(plan, kSamples, sight);
    const Samples order = order_of(plan, 0);
    read_order(mount, order, loader, random);
    for (uint32_t again = 1; again <= 2; ++again) {
      read_order(mount, order, loader, random);
      const TrackerStatus status = mount.tracker.status();
      CHECK(status.suspensions == 0);
      CHECK(status.realignments == again);
      REQUIRE(status.divergence);
      CHECK(contains(status.divergence->hint, "matches epoch 0 again: set_epoch is not called"));
    }
  }
}

TEST_CASE("a suspended plan goes on when the reader comes back, or its epoch is found") {
  const Loader loader{2, 4, 2, 2};
  AccessSequence plan = plan_over(kSamples, plan_text(loader, "seed=42 world=2"));
  AccessSequence other = plan_over(kSamples, plan_text(loader, "seed=1000 world=2"));
  std::mt19937 random(37);
  MountModel mount(plan, kSamples, kSentinels);
  read_order(mount, order_of(plan, 0), loader, random, 0, stop_after(4000));
  read_order(mount, order_of(other, 0), loader, random, 0, stop_after(500));
  CHECK(mount.tracker.state() == TrackerState::suspended);
  const uint64_t opens = opens_until_noticed(mount, order_of(plan, 0), loader, random, 10000);
  CHECK(opens > 0);
  CHECK(opens <= 64);
  CHECK(mount.tracker.state() == TrackerState::following);

  read_order(mount, order_of(plan, 5), loader, random, 0, stop_after(200));
  REQUIRE(mount.tracker.state() == TrackerState::suspended);
  const Diagnosis found = diagnosis(mount, plan, kSamples);
  REQUIRE(found.epoch);
  CHECK(*found.epoch == Epoch(5));
  mount.tracker.set_hint(found.hint);
  CHECK(contains(mount.tracker.status().divergence->hint, "epoch 5"));
  mount.add_epoch(5);
  CHECK(mount.tracker.state() == TrackerState::following);
  CHECK(mount.tracker.status().position.epoch == Epoch(5));
  const PlanPosition high_water = mount.tracker.status().high_water;
  CHECK(high_water.position >= 200);
  CHECK(high_water.position <= 200 + plan.reorder_window());
}

TEST_CASE("a reader follows for certain once it was found, or after some accesses in order") {
  const Loader loader{2, 4, 2, 2};
  AccessSequence plan = plan_over(kSamples, plan_text(loader, "seed=42 world=2"));
  AccessSequence other = plan_over(kSamples, plan_text(loader, "seed=1000 world=2"));
  std::mt19937 random(38);
  MountModel mount(plan, kSamples, kOpens);
  CHECK(!mount.tracker.is_followed());
  const Samples order = order_of(plan, 0);
  mount.open(order[0]);
  CHECK(mount.tracker.state() == TrackerState::following);
  CHECK(!mount.tracker.is_followed());  // which may have been a chance
  for (uint32_t i = 1; i < 20; ++i) mount.open(order[i]);
  CHECK(mount.tracker.is_followed());
  read_order(mount, order_of(other, 0), loader, random, 0, stop_after(500));
  REQUIRE(mount.tracker.state() == TrackerState::suspended);
  CHECK(!mount.tracker.is_followed());
  CHECK(opens_until_noticed(mount, order, loader, random, 10000) > 0);
  CHECK(mount.tracker.is_followed());
}

TEST_CASE("ranks that do not wait for each other") {
  // Two processes, the second always 700 samples behind.
  AccessSequence plan = plan_over(kSamples, "seed=42 world=2 ranks_per_node=2 batch=4");
  const Samples order = order_of(plan, 0);
  for (const Sight& sight : {kOpens, kNothingPushed}) {
    MountModel mount(plan, kSamples, sight);
    for (uint32_t step = 0; step < 8000; ++step) {
      const uint32_t drift = std::min(step / 10, 350U);
      mount.open(order[2 * step]);
      mount.open(order[2 * (step - drift) + 1]);
    }
    const TrackerStatus status = mount.tracker.status();
    CHECK(status.suspensions == 0);
    CHECK(status.realignments == 0);
    CHECK(status.reorder_window > 600);
    CHECK(status.position.position <= 2 * (8000 - 350));
  }
}

TEST_CASE("one access may belong to several samples, and comes in pieces") {
  Samples order{4, 2, 9, 2, 7};
  for (uint32_t sample = 100; sample < 200; ++sample) order.push_back(sample);
  Tracker tracker(1, std::nullopt);
  tracker.add_epoch(
      std::make_shared<const SequencePositions>(std::make_shared<const EpochSequence>(Epoch(0), order, 0)),
      0);
  const TimePoint now{std::chrono::seconds(1)};
  const auto see = [&](const Samples& samples, Access kind) { return tracker.observe(samples, kind, now); };
  CHECK(see({4}, Access::open) == Tracker::Verdict::in_order);
  const Tracker::Observation again = see({4}, Access::read);
  CHECK(again == Tracker::Verdict::repeated);
  CHECK(again.position == 0);
  CHECK(see({11, 2}, Access::open).position == 1);
  CHECK(tracker.status().high_water == PlanPosition{Epoch(0), 2});
  CHECK(see({2}, Access::read) == Tracker::Verdict::repeated);
  CHECK(see({9}, Access::read) == Tracker::Verdict::in_order);
  CHECK(see({2}, Access::open).position == 3);  // again, as planned
  CHECK(tracker.status().high_water == PlanPosition{Epoch(0), 4});
  const Tracker::Observation stray = see({190}, Access::open);
  CHECK(stray == Tracker::Verdict::out_of_order);
  CHECK(!stray.position);
  CHECK(see({190}, Access::read) == Tracker::Verdict::repeated);
  CHECK(see({77}, Access::read) == Tracker::Verdict::out_of_order);
  const TrackerStatus status = tracker.status();
  CHECK(status.in_order == 4);
  CHECK(status.out_of_order == 2);
  CHECK(status.repeated == 3);
  REQUIRE(status.first_difference);
  CHECK(status.first_difference->at == PlanPosition{Epoch(0), 4});
  CHECK(status.first_difference->expected == 7);
  CHECK(status.first_difference->seen == 190);
}

TEST_CASE("a job that resumes begins where it says") {
  const Loader loader{2, 4, 2, 2};
  AccessSequence plan =
      plan_over(kSamples, plan_text(loader, "seed=42 world=2") + " first_epoch=4 start_sample=3000");
  std::mt19937 random(41);
  MountModel mount(plan, kSamples, kSentinels);
  CHECK(mount.tracker.status().position ==
        PlanPosition{Epoch(4), 6000 - static_cast<uint32_t>(plan.reorder_window())});
  CHECK(mount.tracker.status().high_water == PlanPosition{Epoch(4), 6000});
  read_order(mount, order_of(plan, 4), loader, random, 6000);
  read_order(mount, order_of(plan, 5), loader, random);
  CHECK(mount.tracker.status().out_of_order == 0);
  CHECK(mount.tracker.status().high_water == PlanPosition{Epoch(6), 0});
}

TEST_CASE("the rate outlasts a pause") {
  AccessSequence plan = plan_over(kSamples, "seed=1");
  MountModel mount(plan, kSamples, kSentinels);
  const Samples order = order_of(plan, 0);
  for (uint32_t i = 0; i < 10000; ++i) {
    if (i == 9000) mount.now += std::chrono::seconds(60);  // validation
    mount.open(order[i]);
  }
  CHECK(mount.tracker.status().samples_per_second == Approx(1000).epsilon(0.3));
}

TEST_CASE("what is offered and out of order has no effect") {
  AccessSequence plan = plan_over(1000, "seed=42");
  Tracker tracker(plan.reorder_window(), plan.last_epoch());
  tracker.add_epoch(std::make_shared<const SequencePositions>(
                        std::make_shared<const EpochSequence>(*plan.sequence(Epoch(0), NodeId(0)))),
                    0);
  const SteadyClock clock;
  const Samples order = order_of(plan, 0);
  CHECK(tracker.offer(Samples{order[0]}, Access::open, clock.now()) == Tracker::Verdict::in_order);
  for (uint32_t at = 999; at > 800; --at)
    CHECK(tracker.offer(Samples{order[at]}, Access::open, clock.now()) == Tracker::Verdict::out_of_order);
  CHECK(tracker.status().out_of_order == 0);
  CHECK(tracker.state() == TrackerState::following);
  CHECK(tracker.offer(Samples{order[1]}, Access::open, clock.now()) == Tracker::Verdict::in_order);
}

TEST_CASE("a short stream that begins anew is in its next epoch") {
  Samples order(9);
  std::iota(order.begin(), order.end(), 0U);
  Tracker tracker(3, std::nullopt, 1);
  for (uint32_t epoch = 0; epoch < 2; ++epoch) {
    tracker.add_epoch(std::make_shared<const SequencePositions>(
                          std::make_shared<const EpochSequence>(Epoch(epoch), order, 0)),
                      9 * epoch);
  }
  tracker.set_pushed(9, 2);
  TimePoint now{std::chrono::seconds(1)};
  const auto see = [&](uint32_t sample) {
    now += std::chrono::milliseconds(1);
    return tracker.observe(Samples{sample}, Access::read, now).position;
  };
  for (const uint32_t sample : {0U, 2U, 4U, 6U, 8U}) CHECK(see(sample) == sample);
  tracker.set_pushed(18, 2);
  // These went by unseen in the first epoch.
  for (const uint32_t sample : {1U, 3U, 5U}) CHECK(see(sample) == 9 + sample);
  CHECK(tracker.high_water() == 15);
}
