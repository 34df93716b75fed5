#include "plan/plan_run.h"

#include <catch2/catch.hpp>

#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

std::shared_ptr<PlanRun> run_over(uint32_t files, const std::string& plan) {
  DatasetSource source;
  source.catalog = made_up_catalog(std::vector<uint64_t>(files, 5000));
  return *PlanRun::make(*parse_plan(plan), source, {});
}

std::vector<uint32_t> epochs_of(const PlanRun& run) {
  std::vector<uint32_t> epochs;
  for (const auto& planned : run.horizon().epochs) epochs.push_back(planned->sequence->epoch().value);
  return epochs;
}

/// The reader takes the samples of an epoch from `first` to before `end`; whatever the plan wants is
/// prepared.
void read(PlanRun& run, Epoch epoch, uint32_t first, uint32_t end) {
  const SteadyClock clock;
  for (uint32_t position = first; position < end; ++position) {
    const Horizon horizon = run.horizon();
    const auto at = *run.absolute({epoch, position});
    const uint32_t sample = horizon.sample_at(at);
    CHECK(run.tracker().observe({&sample, 1}, Access::open, clock.now()) == Tracker::Verdict::in_order);
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
  CHECK(epochs_of(*run) == Epochs{0, 1});
  read(*run, Epoch(0), 0, kFiles);
  CHECK(epochs_of(*run) == Epochs{0, 1});
  read(*run, Epoch(1), 0, 100);
  CHECK(run->tracker().front().epoch == Epoch(1));
  CHECK(epochs_of(*run) == Epochs{0, 1});  // the one before, lest opens come late
  CHECK(!run->horizon().complete);
  read(*run, Epoch(1), 100, 2000);
  CHECK(epochs_of(*run) == Epochs{1, 2});
  CHECK(run->horizon().complete);
  CHECK(run->memory_bytes() <= two + 100);
  read(*run, Epoch(1), 2000, kFiles);
  read(*run, Epoch(2), 0, 2000);
  CHECK(epochs_of(*run) == Epochs{2});
}

TEST_CASE("of short epochs the one before and the one after the reader's are held") {
  constexpr uint32_t kFiles = 100;
  const auto run = run_over(kFiles, "seed=1 format=files epochs=4");
  while (*run->prepare()) {
  }
  CHECK(epochs_of(*run) == Epochs{0, 1});
  read(*run, Epoch(0), 0, kFiles);
  read(*run, Epoch(1), 0, 3);
  CHECK(epochs_of(*run) == Epochs{0, 1, 2});
  read(*run, Epoch(1), 3, kFiles);
  read(*run, Epoch(2), 0, 3);
  CHECK(epochs_of(*run) == Epochs{1, 2, 3});
  CHECK(run->horizon().complete);
}
