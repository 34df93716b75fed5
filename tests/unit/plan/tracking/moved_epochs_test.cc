// Epochs that a reader is found in before they have a place after the others.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kLength = 1000;
// More tell in which epoch the reader is; of three epochs they are fewer than the newest that are remembered.
constexpr uint32_t kOpened = 20;

struct Reader {
  Samples order(uint32_t epoch) { return order_of(plan, epoch); }

  void add(uint32_t epoch, std::optional<uint64_t> begin) {
    auto sequence = std::make_shared<const EpochSequence>(*plan.sequence(Epoch(epoch), NodeId(0)));
    tracker.add_epoch(std::make_shared<const SequencePositions>(std::move(sequence)), begin);
  }

  Tracker::Observation open(uint32_t sample) {
    now += std::chrono::milliseconds(1);
    return tracker.observe(Samples{sample}, Access::open, now);
  }

  /// Goes on from the middle of an epoch that is planned as soon as it is known to be there.
  void leap_to(uint32_t epoch, uint64_t begin) {
    add(epoch, std::nullopt);
    const Samples there = order(epoch);
    for (uint32_t at = 0; at < kOpened; ++at) open(there[kLength / 2 + at]);
    REQUIRE(tracker.high_water_epoch() == Epoch(epoch));
    CHECK(open(there[0]) == Tracker::Verdict::out_of_order);
    add(epoch, begin);
    CHECK(tracker.high_water() == begin + kLength / 2 + kOpened);
    CHECK(open(there[0]) == Tracker::Verdict::repeated);  // a moment ago
  }

  AccessSequence plan = plan_over(kLength, "seed=42");
  Tracker tracker{plan.reorder_window(), std::nullopt};
  TimePoint now{std::chrono::seconds(1)};
};

}  // namespace

TEST_CASE("what a reader opened before it was found in other epochs stays long ago") {
  Reader reader;
  reader.add(0, 0);
  const Samples begin = reader.order(0);
  for (uint32_t at = 0; at < kOpened; ++at) REQUIRE(reader.open(begin[at]) == Tracker::Verdict::in_order);
  reader.leap_to(5, kLength);
  reader.leap_to(9, 2 * kLength);
  const Samples there = reader.order(9);
  CHECK(reader.open(there[kLength / 2 + kOpened]) == Tracker::Verdict::in_order);
  uint32_t far = 0;
  for (uint32_t at = kOpened / 2; at < kOpened; ++at) {
    if (std::find(there.begin(), there.begin() + kLength / 4, begin[at]) == there.begin() + kLength / 4)
      continue;
    ++far;
    CHECK(reader.open(begin[at]) == Tracker::Verdict::out_of_order);
  }
  CHECK(far > 0);
}
