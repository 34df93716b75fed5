#include "plan/samplers/epoch_stream.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Counts what it is asked to do; its "orders" tell the epochs that made them.
struct Counter {
  uint32_t value = 0;
};

}  // namespace

TEST_CASE("going forward makes each epoch once; going back resumes at a checkpoint") {
  size_t steps = 0;
  auto stream =
      EpochStream<Counter>::independent(1, {}, [&](Counter& counter, Epoch epoch, const auto& previous) {
        ++steps;
        CHECK(previous == nullptr);
        CHECK(counter.value == epoch.value);
        return std::vector<uint32_t>{counter.value++};
      });
  for (uint32_t epoch = 0; epoch < 100; ++epoch) CHECK(stream.order(Epoch(epoch)).value()->at(0) == epoch);
  CHECK(steps == 100);
  CHECK(stream.order(Epoch(37)).value()->at(0) == 37);
  CHECK(stream.order(Epoch(99)).value()->at(0) == 99);
  CHECK(steps == 102);
}

TEST_CASE("epochs on the way are skipped without making them") {
  size_t steps = 0;
  auto stream = EpochStream<Counter>::independent(
      1, {},
      [&](Counter& counter, Epoch, const auto&) {
        ++steps;
        return std::vector<uint32_t>{counter.value++};
      },
      [](Counter& counter, Epoch) { ++counter.value; });
  CHECK(stream.order(Epoch(1000)).value()->at(0) == 1000);
  CHECK(steps == 1);
}

TEST_CASE("cumulative orders survive the thinning of checkpoints") {
  constexpr size_t kSize = 1 << 20;  // 4 MiB each: only a few fit the budget
  size_t steps = 0;
  auto stream = EpochStream<Counter>::cumulative(kSize, {}, [&](Counter&, Epoch epoch, const auto& previous) {
    ++steps;
    CHECK((previous == nullptr) == (epoch.value == 0));
    std::vector<uint32_t> order = previous ? *previous : std::vector<uint32_t>(kSize);
    order[0] = order[0] * 3 + epoch.value;  // depends on the whole past
    return order;
  });
  uint32_t expected = 0;
  std::vector<uint32_t> all;
  for (uint32_t epoch = 0; epoch < 20; ++epoch) {
    expected = expected * 3 + epoch;
    all.push_back(expected);
    CHECK(stream.order(Epoch(epoch)).value()->at(0) == expected);
  }
  CHECK(steps == 20);
  for (const uint32_t epoch : {18U, 5U, 17U, 0U, 19U})
    CHECK(stream.order(Epoch(epoch)).value()->at(0) == all[epoch]);
}
