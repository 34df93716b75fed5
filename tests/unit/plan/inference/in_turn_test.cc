// One reader that goes through several datasets in turn, as scripts with a validation set do. The tests take
// the turns of `inference`, and put in force what it finds.
#include <optional>
#include <string>

#include "plan/inference/inference.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/made_up_folders.h"
#include "tests/support/moved_clock.h"
#include "tests/support/seen_opens.h"

namespace clairfs::seen_opens {
namespace {

constexpr uint32_t kValidation = 2000;

// The second look is at so many.
constexpr uint32_t kSoon = 18;

struct TurnsFixture {
  TurnsFixture()
      : inference({.mode = InferMode::cheap,
                   .dataset = source,
                   .clock = clock,
                   .log = log.logger(),
                   .follow = [this](const FoundOrder& order) { return follow(order); },
                   .processes = [](uint32_t number) -> std::optional<ProcessFacts> {
                     return ProcessFacts{number, number == 100 ? 1U : 100U, 100, 1, number != 100};
                   },
                   .by_hand = true,
                   .when_idle = false}) {
    inference.begin();
  }
  bool follow(const FoundOrder& order) {
    inference.ends(Epoch(reached));
    inference.in_force(order, OrderId(++orders));
    (void)inference.forget(order.program);
    found = order;
    return true;
  }
  /// Opens of `folder` from a place of that epoch on, by two workers with batches of 16, until the order is
  /// found; how many that took, 0 if it was not. What comes after them is explained by the plan.
  uint32_t opens_until_found(const std::string& folder, const std::string& order, uint32_t epoch,
                             uint32_t from = 0, uint32_t most = 160) {
    found.reset();
    const uint32_t n = folder == "train" ? kShuffled : kValidation;
    const Samples samples = node_order(*resolve_plan(*parse_plan(order), 1), n, epoch, 0);
    const uint32_t first = source.catalog->children(*source.catalog->find(folder)).first.value;
    for (uint32_t i = 0; i < most; ++i) {
      inference.note(ThreadId(101 + i / 16 % 2), FileId(first + samples[from + i]), Access::open);
      for (int turn = 0; turn < 1000 && inference.step(clock.time).busy; ++turn) {
      }
      if (found && found->plan.root == folder) return i + 1;
    }
    return 0;
  }

  const DatasetSource source = made_up_folders(kShuffled, kValidation);
  MovedClock clock;
  CapturedLog log;
  std::optional<FoundOrder> found;  // the last one
  uint32_t orders = 0;
  uint32_t reached = 0;  // the epoch in which readers are when they go to the other folder
  Inference inference;
};

}  // namespace

TEST_CASE(
    "the shuffles of a training are followed from their first opens on, with a validation between them") {
  // The validation loader draws two outputs, and two more if it shuffles.
  const auto [validation, others] = GENERATE(std::pair("sampler=torch.sequential", 2),
                                             std::pair("sampler=numpy.default_rng seed=7 method=shuffle", 2),
                                             std::pair("sampler=torch.sequential", 500));
  const std::string training =
      "sampler=torch.random generator=default seed=42 draws=500 other_draws=" + std::to_string(others);
  INFO(training << ", " << validation);
  TurnsFixture job;
  for (uint32_t epoch = 0; epoch < 4; ++epoch) {
    INFO(epoch);
    const uint32_t opens = job.opens_until_found("train", training, epoch);
    REQUIRE(opens > 0);
    CHECK((epoch == 0 || opens <= kSoon));
    const PlanSpec& plan = job.found->plan;
    CHECK(plan.batch == 16);
    CHECK(plan.workers == 2);
    // Two epochs at the distance that a validation loader makes are proof, at any other one three are.
    const bool goes_on = epoch >= (others == 2 ? 1 : 2);
    CHECK(plan.epochs == (goes_on ? 0 : 1));
    if (goes_on) {
      CHECK(plan.first_epoch == epoch);
      CHECK(plan.draws == 500);
      CHECK(plan.other_draws == static_cast<uint64_t>(others));
    }
    job.reached = epoch + 1;
    CHECK(job.opens_until_found("val", validation, epoch) > 0);
  }
}

TEST_CASE("an order that goes on is known again after another one, in its next epoch and in the same") {
  const std::string training = "sampler=torch.distributed seed=7";
  TurnsFixture job;
  REQUIRE(job.opens_until_found("train", training, 0));
  CHECK(job.found->plan.epochs == 1);
  job.reached = 1;
  REQUIRE(job.opens_until_found("val", "sampler=torch.sequential", 0));
  const uint32_t next = job.opens_until_found("train", training, 1);
  CHECK((next > 0 && next <= kSoon));
  CHECK(job.found->plan.epochs == 0);
  CHECK(job.found->plan.first_epoch == 1);

  // Validated in the middle of it.
  REQUIRE(job.opens_until_found("val", "sampler=torch.sequential", 0));
  const uint32_t again = job.opens_until_found("train", training, 1, 6000);
  CHECK((again > 0 && again <= kSoon));
  CHECK(job.found->plan.epochs == 0);
  CHECK(job.found->plan.first_epoch == 1);
  CHECK(job.found->plan.start_sample >= 5900);
  CHECK(job.found->plan.start_sample <= 6000);
}

// A look ends with the first order that is found, also with one that is not followed.
TEST_CASE("an order that the user has cancelled is not known again, and keeps nobody from being found") {
  const std::string training = "sampler=torch.distributed seed=7";
  TurnsFixture job;
  REQUIRE(job.opens_until_found("train", training, 0));
  REQUIRE(job.opens_until_found("val", "sampler=torch.sequential", 0));
  PlanSpec cancelled;
  cancelled.root = "train";
  cancelled.sampler = "torch.distributed";
  job.inference.refuse(cancelled);
  CHECK(job.opens_until_found("train", training, 1, 0, 14) == 0);
  CHECK(job.opens_until_found("val", "sampler=torch.distributed seed=1234", 0) > 0);
}

}  // namespace clairfs::seen_opens
