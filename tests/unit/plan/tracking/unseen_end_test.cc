// The end of a plan whose reader passed what lies before it unseen.
#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// Of two epochs the reader is in the last one, which has the samples in the order of their numbers. All of
/// it has been pushed, and 300 samples were opened.
struct LastEpoch {
  static constexpr uint32_t kLength = 1000;
  static constexpr uint32_t kLast = kLength - 1;

  LastEpoch() : before(kLength) {
    Samples order(kLength);
    std::iota(order.begin(), order.end(), 0U);
    for (const uint32_t at : order) before[at] = 417 * at % kLength;
    add(1, std::move(order));
    add(0, before);
    tracker.set_pushed(2 * kLength, 20);
    for (uint32_t sample = 0; sample < 300; ++sample) REQUIRE(see(sample));
  }

  void add(uint32_t epoch, Samples order) {
    auto sequence = std::make_shared<const EpochSequence>(Epoch(epoch), std::move(order), 0U);
    tracker.add_epoch(std::make_shared<const SequencePositions>(std::move(sequence)), epoch * kLength);
  }

  /// Whether it is in order.
  bool see(uint32_t sample) {
    now += 1ms;
    return tracker.observe(Samples{sample}, Access::open, now) == Tracker::Verdict::in_order;
  }

  Samples before;  ///< the order of the first epoch
  Tracker tracker{1, Epoch(1)};
  TimePoint now{1s};
};

}  // namespace

TEST_CASE("an access to the plan's last sample, out of order, is its end if nothing comes after it") {
  const bool goes_on = GENERATE(false, true);
  LastEpoch f;
  REQUIRE_FALSE(f.see(LastEpoch::kLast));
  CHECK(f.tracker.look_for_unseen_end(f.now) == 5s);
  if (goes_on) REQUIRE(f.see(300));
  CHECK(!f.tracker.look_for_unseen_end(f.now + 5s));
  CHECK(f.tracker.state() == (goes_on ? TrackerState::following : TrackerState::finished));
}

TEST_CASE("a reader that the plan's last sample shows to be elsewhere has not come to the end") {
  LastEpoch f;
  const auto last = std::find(f.before.begin(), f.before.end(), LastEpoch::kLast);
  for (auto at = last - 7; at < last; ++at) REQUIRE_FALSE(f.see(*at));
  REQUIRE(f.tracker.status().realignments == 0);
  REQUIRE(f.see(LastEpoch::kLast));
  REQUIRE(f.tracker.status().realignments == 1);
  const auto place = static_cast<uint32_t>(last - f.before.begin());
  REQUIRE(f.tracker.status().high_water == PlanPosition{Epoch(0), place + 1});
  CHECK(!f.tracker.look_for_unseen_end(f.now));
  CHECK(!f.tracker.look_for_unseen_end(f.now + 1h));
  CHECK(f.tracker.state() == TrackerState::following);
}
