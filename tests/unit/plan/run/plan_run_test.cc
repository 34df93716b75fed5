#include "plan/run/plan_run.h"

#include <new>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

std::shared_ptr<PlanRun> run_over(uint32_t files, const std::string& plan) {
  DatasetSource source;
  source.catalog = made_up_catalog(std::vector<uint64_t>(files, 5000));
  return *PlanRun::make(*parse_plan(plan), source, {});
}

std::vector<uint32_t> epochs_of(const PlanReader& reader) {
  const Timeline timeline = reader.timeline();
  std::vector<uint32_t> epochs;
  for (uint32_t e = timeline.first().value; e <= timeline.last().value; ++e)
    epochs.push_back(timeline.epoch(Epoch(e)).epoch().value);
  return epochs;
}

/// The absolute position of an epoch of the timeline.
uint64_t begin_of(const PlanReader& reader, Epoch epoch) {
  return reader.timeline().epoch(epoch).base;
}

/// The reader takes the samples of an epoch from `first` to before `end`; whatever the plan wants is
/// prepared.
void read(PlanRun& run, Epoch epoch, uint32_t first, uint32_t end) {
  const SteadyClock clock;
  for (uint32_t position = first; position < end; ++position) {
    const Timeline timeline = run.reader().timeline();
    const uint64_t at = begin_of(run.reader(), epoch) + position;
    const uint32_t sample = timeline.sample_at(at);
    CHECK(run.reader().tracker().observe({&sample, 1}, Access::open, clock.now()) ==
          Tracker::Verdict::in_order);
    while (*run.prepare()) {
    }
  }
}

using Epochs = std::vector<uint32_t>;

}  // namespace

TEST_CASE("of long epochs two are held at a time, and a few bytes a sample") {
  constexpr uint32_t kFiles = 20'000;
  const auto run = run_over(kFiles, "seed=1 format=files epochs=3");
  while (*run->prepare()) {
  }
  const uint64_t two = run->memory_bytes();
  CHECK(two < 27 * kFiles);  // numbering and chunks 4 each, an epoch 9 and a bit
  CHECK(epochs_of(run->reader()) == Epochs{0, 1});
  read(*run, Epoch(0), 0, kFiles);
  CHECK(epochs_of(run->reader()) == Epochs{0, 1});
  read(*run, Epoch(1), 0, 100);
  CHECK(run->reader().tracker().high_water_epoch() == Epoch(1));
  CHECK(epochs_of(run->reader()) == Epochs{0, 1});  // the one before, lest opens come late
  CHECK(!run->reader().timeline().complete());
  read(*run, Epoch(1), 100, 2000);
  CHECK(epochs_of(run->reader()) == Epochs{1, 2});
  CHECK(run->reader().timeline().complete());
  CHECK(run->memory_bytes() <= two + 100);
  read(*run, Epoch(1), 2000, kFiles);
  read(*run, Epoch(2), 0, 2000);
  CHECK(epochs_of(run->reader()) == Epochs{2});
}

TEST_CASE("of short epochs the one before and the one after the reader's are held") {
  constexpr uint32_t kFiles = 100;
  const auto run = run_over(kFiles, "seed=1 format=files epochs=4");
  while (*run->prepare()) {
  }
  CHECK(epochs_of(run->reader()) == Epochs{0, 1});
  read(*run, Epoch(0), 0, kFiles);
  read(*run, Epoch(1), 0, 3);
  CHECK(epochs_of(run->reader()) == Epochs{0, 1, 2});
  read(*run, Epoch(1), 3, kFiles);
  read(*run, Epoch(2), 0, 3);
  CHECK(epochs_of(run->reader()) == Epochs{1, 2, 3});
  CHECK(run->reader().timeline().complete());
}

TEST_CASE("the length of the epoch is that of the reader's, also beside a shorter one") {
  const auto run = run_over(100, "seed=1 format=shards epochs=4 start_sample=40");
  while (*run->prepare()) {
  }
  CHECK(run->epoch_length() == 60);
  read(*run, Epoch(0), 0, 60);
  read(*run, Epoch(1), 0, 3);
  CHECK(epochs_of(run->reader()) == Epochs{0, 1, 2});
  CHECK(run->epoch_length() == 100);
}

TEST_CASE("each rank has a timeline of its own, and of the orders of an epoch each is made once") {
  constexpr uint32_t kFiles = 30'000;
  const auto run = run_over(kFiles, "seed=1 format=files epochs=4 world=3 ranks_per_node=3");
  REQUIRE(run->readers().size() == 3);
  while (*run->prepare()) {
  }
  const auto epochs = [&](size_t rank) { return epochs_of(run->reader(rank)); };
  const SteadyClock clock;
  const auto read = [&](size_t rank, Epoch epoch) {
    for (uint32_t position = 0; position < kFiles / 3; ++position) {
      const uint64_t at = begin_of(run->reader(rank), epoch) + position;
      const uint32_t sample = run->reader(rank).timeline().sample_at(at);
      const auto seen =
          run->observe(ThreadId(100 + static_cast<uint32_t>(rank)), {&sample, 1}, Access::open, clock.now());
      CHECK(seen.verdict == Tracker::Verdict::in_order);
      CHECK(seen.rank == rank);
      CHECK(seen.position == static_cast<int64_t>(at));
      if (position % 512 == 0) {
        while (*run->prepare()) {
        }
      }
    }
  };
  for (const uint32_t epoch : {0U, 1U, 2U}) read(0, Epoch(epoch));
  read(1, Epoch(0));
  CHECK(epochs(0) == Epochs{2, 3});
  CHECK(epochs(1) == Epochs{0, 1});
  CHECK(epochs(2) == Epochs{0, 1});
  CHECK(run->memory_bytes() < 27 * kFiles);  // as when they are in step
  CHECK(run->status().high_water == PlanPosition{Epoch(3), 0});
  CHECK(run->status().in_order == 4 * kFiles / 3);
}

TEST_CASE(
    "a plan of several ranks that is left is not back because one that waits has a sample of its order") {
  const auto run = run_over(3000, "seed=1 format=files epochs=2 world=3 ranks_per_node=3");
  const SteadyClock clock;
  const auto open = [&](uint32_t thread, uint32_t sample) {
    run->observe(ThreadId(thread), {&sample, 1}, Access::open, clock.now());
  };
  const auto sample_of = [&](size_t rank, uint32_t position) {
    const auto& reader = run->reader(rank);
    return reader.timeline().sample_at(begin_of(reader, Epoch(0)) + position);
  };
  CHECK(!run->is_left());
  for (uint32_t i = 0; i < 20; ++i) open(100, sample_of(0, i));
  for (uint32_t sample = 0; sample < 200; ++sample) open(100, sample);
  REQUIRE(run->reader(0).tracker().state() == TrackerState::suspended);
  CHECK(run->is_left());
  CHECK(run->is_left_by(0));
  open(101, sample_of(1, 0));
  CHECK(run->reader(1).tracker().state() == TrackerState::following);
  CHECK(run->is_left());
  CHECK(run->is_left_by(1));
  for (uint32_t i = 1; i < 20; ++i) open(101, sample_of(1, i));
  CHECK(!run->is_left());
}

TEST_CASE("of a reader that goes another way from an epoch's beginning on, that epoch is diagnosed") {
  constexpr uint32_t kFiles = 3000;
  const std::string loader = "sampler=torch.random seed=1 epochs=3 batch=4 workers=2";
  const auto run = run_over(kFiles, loader + " format=files");
  while (*run->prepare()) {
  }
  read(*run, Epoch(0), 0, kFiles);  // the same in both orders
  AccessSequence real = plan_over(kFiles, loader + " persistent_workers=true");
  const std::vector<uint32_t> order = order_of(real, 1);
  const SteadyClock clock;
  for (uint32_t position = 0; position < 40; ++position)
    run->observe(ThreadId(100), {&order[position], 1}, Access::open, clock.now());
  REQUIRE(run->reader().tracker().state() == TrackerState::suspended);
  const auto left = run->reader().tracker().status().divergence;
  REQUIRE(left);
  CHECK(left->at.epoch == Epoch(1));
  CHECK(run->diagnose_divergence({}).news == std::vector<size_t>{0});
  const std::string hint = run->reader().tracker().status().divergence->hint;
  CHECK(hint == "matches persistent_workers=true: does the plan say what the script does?");
}

TEST_CASE("a job of several epochs that is started again after the plan's end is found in its first one") {
  constexpr uint32_t kFiles = 3000;
  const auto run = run_over(kFiles, "seed=1 format=files epochs=4");
  while (*run->prepare()) {
  }
  for (const uint32_t epoch : {0U, 1U, 2U, 3U}) read(*run, Epoch(epoch), 0, kFiles);
  const Tracker& tracker = run->reader().tracker();
  AccessSequence plan = plan_over(kFiles, "seed=1");
  const std::vector<uint32_t> order = order_of(plan, 0);
  const SteadyClock clock;
  for (uint32_t position = 0; position < 40; ++position)
    run->observe(ThreadId(100), {&order[position], 1}, Access::open, clock.now());
  REQUIRE(run->is_left());
  REQUIRE(tracker.state() == TrackerState::finished);
  CHECK(run->diagnose_divergence({}).news.empty());
  CHECK(!run->is_left());
  CHECK(tracker.state() == TrackerState::following);
  CHECK(tracker.high_water_epoch() == Epoch(0));
  CHECK(tracker.status().divergence->hint == "epoch 0 was read again after the plan's end");
}

TEST_CASE("so is one that is started again when others have read a finished plan's files for long") {
  constexpr uint32_t kFiles = 3000;
  const bool trains_on = GENERATE(false, true);  // in an epoch that comes after the plan's end
  const auto run = run_over(kFiles, "seed=1 format=files epochs=4");
  while (*run->prepare()) {
  }
  for (const uint32_t epoch : {0U, 1U, 2U, 3U}) read(*run, Epoch(epoch), 0, kFiles);
  const SteadyClock clock;
  int diagnosed = 0;
  const auto open = [&](const std::string& plan, uint32_t epoch, uint32_t count) {
    AccessSequence sequence = plan_over(kFiles, plan);
    const std::vector<uint32_t> order = order_of(sequence, epoch);
    for (uint32_t position = 0; position < count; ++position) {
      run->observe(ThreadId(100), {&order[position], 1}, Access::open, clock.now());
      for (; run->wants_diagnosis(); ++diagnosed) run->diagnose_divergence({});
    }
  };
  open(trains_on ? "seed=1" : "seed=918273646", trains_on ? 4U : 0U, 300);
  REQUIRE(diagnosed == 2);
  const Tracker& tracker = run->reader().tracker();
  REQUIRE(tracker.state() == TrackerState::finished);
  REQUIRE(run->is_left());
  open("seed=1", 0, 100);
  CHECK(diagnosed == 2);
  CHECK(tracker.state() == TrackerState::following);
  CHECK(tracker.status().high_water == PlanPosition{Epoch(0), 100});
}

TEST_CASE("nothing is said of a rank that goes on before another one is at the end of a found plan") {
  constexpr uint32_t kFiles = 3000;
  const std::string ranks = " world=2 ranks_per_node=2";
  const auto run = run_over(kFiles, "name=auto seed=1 format=files epochs=1" + ranks);
  const SteadyClock clock;
  const auto open = [&](uint32_t sample) {
    run->observe(ThreadId(100), {&sample, 1}, Access::open, clock.now());
  };
  const Timeline first = run->reader(0).timeline();
  for (uint64_t at = first.begin(); at < first.end(); ++at) open(first.sample_at(at));
  const Tracker& tracker = run->reader(0).tracker();
  REQUIRE(tracker.state() == TrackerState::finished);
  REQUIRE(run->status().state != TrackerState::finished);
  AccessSequence plan = plan_over(kFiles, "seed=1");
  const std::vector<uint32_t> next = order_of(plan, 1);
  for (uint32_t position = 0; position < 80; position += 2) open(next[position]);
  REQUIRE(tracker.wants_diagnosis());
  CHECK(run->diagnose_divergence({}).news.empty());
  CHECK(!run->wants_diagnosis());
  CHECK(tracker.state() == TrackerState::finished);
}

TEST_CASE("a seed that the first opens are too few to tell is named when more were seen") {
  constexpr uint32_t kFiles = 3000;
  const auto run = run_over(kFiles, "seed=42 batch=16 workers=8 format=files");
  AccessSequence real = plan_over(kFiles, "seed=999 batch=16 workers=8");
  const std::vector<uint32_t> order = order_of(real, 0);
  const SteadyClock clock;
  Tracker& tracker = run->reader().tracker();
  uint32_t opens = 0;
  const auto open_next = [&] {
    run->observe(ThreadId(100), {&order[opens++], 1}, Access::open, clock.now());
  };
  while (opens < 20 && tracker.state() != TrackerState::suspended) open_next();
  REQUIRE(run->wants_diagnosis());
  run->diagnose_divergence({});
  CHECK(tracker.status().divergence->hint.starts_with("matches no known order"));
  while (opens < 300) open_next();
  REQUIRE(run->wants_diagnosis());
  run->diagnose_divergence({});
  CHECK(tracker.status().divergence->hint == "matches seed=999 instead of 42");
}

TEST_CASE("where there is no memory to find out why a plan is left it is left for no known reason") {
  constexpr uint32_t kFiles = 3000;
  const auto run = run_over(kFiles, "seed=1 format=files");
  AccessSequence real = plan_over(kFiles, "seed=918273646");
  const std::vector<uint32_t> order = order_of(real, 0);
  const SteadyClock clock;
  for (uint32_t position = 0; position < 40; ++position)
    run->observe(ThreadId(100), {&order[position], 1}, Access::open, clock.now());
  REQUIRE(run->wants_diagnosis());
  const auto diagnosed = run->diagnose_divergence([]() -> bool { throw std::bad_alloc(); });
  CHECK(diagnosed.news == std::vector<size_t>{0});
  CHECK(!run->wants_diagnosis());
  const std::string hint = run->reader().tracker().status().divergence->hint;
  CHECK(hint == "matches no known order: not enough memory to try all");
}

TEST_CASE("a plan of records is not left by who goes through their file") {
  const auto run = run_over(3, "seed=1 format=raw file=f10000 record=50 epochs=2");
  const SteadyClock clock;
  for (uint32_t sample = 0; sample < 100; ++sample)
    run->observe(ThreadId(100), {&sample, 1}, Access::read, clock.now());
  CHECK(run->reader().tracker().state() == TrackerState::suspended);
  CHECK(!run->is_left());
}

TEST_CASE("who never read the first epoch of a plan may have the seed of the one that was found") {
  const auto run = run_over(3000, "seed=42 format=files epochs=3");
  Divergence d;
  d.at = {Epoch(0), 3};
  d.found = PlanPosition{Epoch(2), 5};
  d.hint = "an epoch was left out";
  const auto asks = [&](const PlanRun& plan) {
    return plan.describe(0, d).ends_with(": an epoch was left out (or is the seed 44?)");
  };
  CHECK(asks(*run));
  CHECK(!asks(*run_over(3000, "seed=42 format=files epochs=3 set_epoch=never")));
  CHECK(!asks(*run_over(3000, "seed=42 format=files epochs=3 sampler=torch.random")));
  d.at.position = 2000;
  CHECK(!asks(*run));
  d.at = {Epoch(1), 3};
  CHECK(!asks(*run));
}

TEST_CASE("where a reader left its plan is never told as expected X, saw X") {
  const auto one = run_over(40, "seed=1 format=files");
  const auto two = run_over(40, "seed=1 format=files world=4 ranks_per_node=2");
  Divergence d;
  d.at = {Epoch(2), 7};
  d.expected = 3;
  d.seen = 5;
  d.hint = "matches nothing";
  const std::string x = one->index().path(3);
  const std::string y = one->index().path(5);
  CHECK(one->describe(0, d) == "epoch 2 position 7: expected " + x + ", saw " + y + ": matches nothing");
  CHECK(two->describe(1, d) ==
        "rank 1, epoch 2 position 7: expected " + x + ", saw " + y + ": matches nothing");
  d.hint.clear();
  d.due = PlanPosition{Epoch(3), 9};
  CHECK(one->describe(0, d) ==
        "epoch 2 position 7: expected " + x + ", saw " + y + ", which is planned at epoch 3 position 9");
  d.seen = d.expected;
  CHECK(one->describe(0, d) ==
        "epoch 2 position 7: saw " + x + " out of turn, which is planned at epoch 3 position 9");
  d.expected.reset();
  d.due.reset();
  CHECK(one->describe(0, d) == "epoch 2 position 7: saw " + x + " after the last sample");
  d.expected = 3;
  d.seen.reset();
  d.left_out = 33;
  CHECK(one->describe(0, d) == "epoch 2 position 7: 33 samples before " + x + " were left out");
}
