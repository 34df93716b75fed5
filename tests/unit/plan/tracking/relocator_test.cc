#include "plan/tracking/relocator.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint32_t kLength = 100000;
constexpr Relocator::Sight kFewOpens{4, 0};

// Epoch 0 has sample p at position p, epoch 1 the same from the end.
KnownEpochs two_epochs() {
  KnownEpochs epochs;
  std::vector<uint32_t> samples(kLength);
  std::iota(samples.begin(), samples.end(), 0U);
  const auto add = [&](uint32_t number) {
    auto sequence = std::make_shared<const EpochSequence>(Epoch(number), samples, 0);
    epochs.add(std::make_shared<const SequencePositions>(std::move(sequence)), uint64_t{number} * kLength);
  };
  add(0);
  std::reverse(samples.begin(), samples.end());
  add(1);
  return epochs;
}

// Strays at these positions of epoch 0, one a tick.
void stray(Relocator& relocator, uint32_t from, uint32_t count, uint32_t step = 1, uint64_t tick = 1) {
  for (uint32_t i = 0; i < count; ++i) relocator.note_stray({from + i * step, tick + i});
}

}  // namespace

TEST_CASE("eight strays in a row say where the reader is, seven do not") {
  const KnownEpochs epochs = two_epochs();
  Relocator relocator;
  stray(relocator, 5000, 7);
  CHECK_FALSE(relocator.find(epochs, TrackerState::following, kFewOpens));
  relocator.note_stray({5007, 8});
  const auto found = relocator.find(epochs, TrackerState::following, kFewOpens);
  REQUIRE(found);
  CHECK(found->epoch == Epoch(0));
  CHECK(found->chain.low == 5000);
  CHECK(found->chain.second == 5006);
  CHECK(found->chain.top == 5007);
  relocator.clear();
  CHECK_FALSE(relocator.find(epochs, TrackerState::following, kFewOpens));
}

TEST_CASE("the epoch that explains most is the one") {
  const KnownEpochs epochs = two_epochs();
  Relocator relocator;
  for (uint32_t i = 0; i < 12; ++i) relocator.note_stray({kLength - 1 - 700 - 4 * i, i});
  const auto found = relocator.find(epochs, TrackerState::suspended, kFewOpens);
  REQUIRE(found);
  CHECK(found->epoch == Epoch(1));
  CHECK(found->chain.top == 744);
}

TEST_CASE("of epochs in one order the reader skipped ahead in its own, or is in the first") {
  constexpr uint32_t kShortLength = 1000;
  std::vector<uint32_t> samples(kShortLength);
  std::iota(samples.begin(), samples.end(), 0U);
  KnownEpochs epochs;
  for (uint32_t number = 0; number < 3; ++number) {
    auto sequence = std::make_shared<const EpochSequence>(Epoch(number), samples, 0);
    epochs.add(std::make_shared<const SequencePositions>(std::move(sequence)), number * kShortLength);
  }
  const auto epoch_of = [&](uint32_t from, TrackerState state) {
    Relocator relocator;
    stray(relocator, from, 8);
    const auto found = relocator.find(epochs, state, {4, 64, kShortLength + 132});
    REQUIRE(found);
    CHECK(found->chain.top == from + 7);
    return found->epoch;
  };
  CHECK(epoch_of(151, TrackerState::following) == Epoch(1));
  CHECK(epoch_of(0, TrackerState::following) == Epoch(0));  // began again
  CHECK(epoch_of(151, TrackerState::suspended) == Epoch(0));
  CHECK(epoch_of(151, TrackerState::finished) == Epoch(0));
}

TEST_CASE("sentinels are found at their distance") {
  const KnownEpochs epochs = two_epochs();
  Relocator relocator;
  stray(relocator, 5000, 12, 60);
  CHECK_FALSE(relocator.find(epochs, TrackerState::following, kFewOpens));
  CHECK(relocator.find(epochs, TrackerState::following, {4, 64}));
}

TEST_CASE("another reader on the same files is not ours, while ours goes on") {
  const KnownEpochs epochs = two_epochs();
  Relocator relocator;
  for (uint64_t tick = 0; tick < 20; tick += 2) {
    relocator.note_stray({5000 + static_cast<uint32_t>(tick), tick});
    relocator.note_match(tick + 1);
  }
  CHECK_FALSE(relocator.find(epochs, TrackerState::following, kFewOpens));
  CHECK(relocator.find(epochs, TrackerState::waiting, kFewOpens));
}

TEST_CASE("a suspended plan is found by most of what is seen") {
  const KnownEpochs epochs = two_epochs();
  std::mt19937 random(1);
  const auto found_with = [&](uint32_t strangers) {
    Relocator relocator;
    for (uint32_t i = 0; i < 64; ++i)
      relocator.note_stray({i % 16 < strangers ? static_cast<uint32_t>(random() % kLength) : 5000 + i, i});
    return relocator.find(epochs, TrackerState::suspended, kFewOpens).has_value();
  };
  CHECK(found_with(4));
  CHECK_FALSE(found_with(9));
}

TEST_CASE("after samples were left out, only a reader that leaves none out is found") {
  const KnownEpochs epochs = two_epochs();
  Relocator relocator;
  relocator.require_all();
  stray(relocator, 5000, 64, 2);
  CHECK_FALSE(relocator.find(epochs, TrackerState::suspended, kFewOpens));
  stray(relocator, 9000, 64, 1, 100);
  CHECK(relocator.find(epochs, TrackerState::suspended, kFewOpens));
}

TEST_CASE("that none are left out shows also where opens stray far") {
  const KnownEpochs epochs = two_epochs();
  constexpr Relocator::Sight kWorkers{40, 0};
  Relocator relocator;
  relocator.require_all();
  stray(relocator, 5000, 200, 2);
  CHECK_FALSE(relocator.find(epochs, TrackerState::suspended, kWorkers));
  stray(relocator, 9000, 200, 1, 1000);
  CHECK(relocator.find(epochs, TrackerState::suspended, kWorkers));
}

TEST_CASE("a search is due with every fourth stray") {
  const KnownEpochs epochs = two_epochs();
  Relocator relocator;
  stray(relocator, 0, 3, 1000);
  CHECK_FALSE(relocator.is_due());
  stray(relocator, 50000, 1);
  CHECK(relocator.is_due());
  relocator.find(epochs, TrackerState::following, kFewOpens);
  CHECK_FALSE(relocator.is_due());
}
