#include "cache/source/operation_cost.h"

#include <cmath>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr Duration kOfByte = 10ns;  // 100 MB/s

/// So many operations of 16 to 256 KiB of a source that is always busy; each ends up to `late` too late.
void end_busily(OperationCost& cost, int operations, Duration each, Duration late = {}) {
  std::mt19937 random(5);
  std::uniform_int_distribution<uint64_t> size(16 << 10, 256 << 10);
  std::uniform_int_distribution<Duration::rep> delay(0, late.count());
  TimePoint end{};
  for (int i = 0; i < operations; ++i) {
    const uint64_t bytes = size(random);
    end += each + bytes * kOfByte;
    cost.ended(bytes, end + Duration(delay(random)), true);
  }
}

}  // namespace

TEST_CASE("an operation costs what the source could have read meanwhile") {
  for (const Duration each : {Duration(0), Duration(500us), Duration(5ms)}) {
    const auto right = static_cast<double>(each / kOfByte);
    OperationCost exact;
    end_busily(exact, 100, each);
    CHECK(std::abs(static_cast<double>(exact.bytes()) - right) < 16);
    OperationCost about;
    end_busily(about, 1000, each, 1ms);
    CHECK(static_cast<double>(about.bytes()) > right - 64e3 - right / 5);
    CHECK(static_cast<double>(about.bytes()) < right + 64e3 + right / 5);
  }
}

TEST_CASE("the cost follows a source that changes") {
  OperationCost cost;
  end_busily(cost, 1000, 5ms);
  CHECK(cost.bytes() > 400'000);
  end_busily(cost, 1000, {});
  CHECK(cost.bytes() < 16);
}

TEST_CASE("few operations, equal ones and an idle source tell nothing of the cost") {
  OperationCost few;
  end_busily(few, 16, 1ms);  // the first one only begins
  CHECK(few.bytes() == UINT64_MAX);
  CHECK(few.worth_taking_along() == UINT64_MAX);
  OperationCost enough;
  end_busily(enough, 17, 1ms);
  CHECK(enough.bytes() < 110'000);
  OperationCost equal, idle;
  TimePoint now{};
  for (uint64_t i = 0; i < 1000; ++i) {
    now += 1ms;
    equal.ended(100'000, now, true);
    idle.ended(1000 * i, now, false);
  }
  CHECK(equal.bytes() == UINT64_MAX);
  CHECK(idle.bytes() == UINT64_MAX);
  CHECK(idle.worth_taking_along() == UINT64_MAX);
}

TEST_CASE("operations of which the larger ones take less time tell nothing, and are not believed later") {
  OperationCost cost;
  TimePoint now{};
  const auto end = [&](uint64_t bytes, Duration took) {
    now += took;
    cost.ended(bytes, now, true);
  };
  for (int i = 0; i < 40; ++i) {
    end(128 << 10, 5ms);
    end(64 << 10, 6ms);
  }
  CHECK(cost.worth_taking_along() == UINT64_MAX);
  for (int i = 0; i < 1000; ++i) end(128 << 10, 5ms);
  CHECK(cost.worth_taking_along() == 0);  // they are made to differ once more
  for (int i = 0; i < 100; ++i) {
    end(128 << 10, 5ms + (128 << 10) * kOfByte);
    end(64 << 10, 5ms + (64 << 10) * kOfByte);
  }
  CHECK(cost.bytes() > 450'000);
  CHECK(cost.bytes() < 600'000);
}

TEST_CASE("equal operations are made to differ once, and after that leave the cost as it is") {
  OperationCost cost;
  TimePoint now{};
  const auto end = [&](int operations, uint64_t bytes) {
    for (int i = 0; i < operations; ++i) {
      now += 5ms + bytes * kOfByte;
      cost.ended(bytes, now, true);
    }
  };
  end(16, 128 << 10);  // the first one only begins
  CHECK(cost.worth_taking_along() == UINT64_MAX);
  end(1, 128 << 10);
  CHECK(cost.worth_taking_along() == 0);
  end(8, 64 << 10);
  CHECK(cost.worth_taking_along() > 500'000);
  end(1000, 128 << 10);
  CHECK(cost.bytes() > 499'000);
  CHECK(cost.bytes() < 501'000);
}
