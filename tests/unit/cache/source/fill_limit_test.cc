#include "cache/source/fill_limit.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t kBytes = 100'000;

/// A source that takes 2 ms for an operation and serves eight of them at once; what is more waits.
struct BusySource {
  FillLimit limit{64};
  TimePoint now = TimePoint() + 1h;

  Duration took(unsigned others) const { return std::max<Duration>(2ms, 2ms * (limit.value() + others) / 8); }
  /// The mean of the limit over the latter half of so many operations beside those of others.
  double run(int operations, unsigned others) {
    double sum = 0;
    for (int i = 0; i < operations; ++i) {
      now += took(others) / limit.value();
      limit.completed(kBytes, took(others), now);
      if (i >= operations / 2) sum += limit.value();
    }
    return sum / (operations - operations / 2);
  }
};

}  // namespace

TEST_CASE("fills use what is idle, and not much more") {
  BusySource source;
  CHECK(source.limit.value() == FillLimit::kLeast);
  const double mean = source.run(4000, 0);
  CHECK(mean > 8);
  CHECK(mean < 17);
}

TEST_CASE("fills make room for others, and take it again") {
  BusySource source;
  source.run(1000, 0);
  source.run(100, 40);
  CHECK(source.limit.value() == FillLimit::kLeast);
  source.run(1000, 40);
  CHECK(source.limit.value() == FillLimit::kLeast);
  source.run(1000, 0);
  CHECK(source.limit.value() > 6);
}

TEST_CASE("latencies that differ, and large operations, do not look like others that want the source") {
  FillLimit limit(64);
  TimePoint now = TimePoint() + 1h;
  std::mt19937 random(1);
  std::lognormal_distribution<double> factor(0, 1);
  for (int i = 0; i < 10000; ++i) {
    const bool large = random() % 2 == 0;  // at 100 MB/s
    const std::chrono::duration<double> took((large ? 0.011 : 0.002) * factor(random));
    limit.completed(large ? 10 * kBytes : kBytes, std::chrono::duration_cast<Duration>(took), now += 1ms);
  }
  CHECK(limit.value() > 32);
}

TEST_CASE("what a server has in memory does not make the rest look slow") {
  FillLimit limit(64);
  TimePoint now = TimePoint() + 1h;
  std::mt19937 random(1);
  for (int i = 0; i < 30000; ++i) limit.completed(kBytes, random() % 100 < 15 ? 200us : 2ms, now += 1ms);
  CHECK(limit.value() > 32);
}

TEST_CASE("operations of other sizes do not look slow where only their number or only their bytes count") {
  const Duration each = GENERATE(Duration(10ms), Duration(10us));
  FillLimit limit(64);
  TimePoint now = TimePoint() + 1h;
  const auto run = [&](uint64_t bytes) {
    const Duration took = each + std::chrono::nanoseconds(4 * bytes);  // at 250 MB/s
    for (int i = 0; i < 5000; ++i) limit.completed(bytes, took, now += 1ms);
    CHECK(limit.value() > 32);
  };
  for (const uint64_t bytes : {4 << 20, 64 << 10, 100'000, 1 << 20, 3 << 20, 150'000}) run(bytes);
}

TEST_CASE("a source that has become slower for good is not taken for busy for ever") {
  BusySource source;
  source.run(1000, 0);
  for (int i = 0; i < 1000; ++i) source.limit.completed(kBytes, 10ms, source.now += 1ms);
  CHECK(source.limit.value() == FillLimit::kLeast);
  for (int i = 0; i < 1000; ++i) source.limit.completed(kBytes, 10ms, source.now += 10s);
  CHECK(source.limit.value() > 8);
}

TEST_CASE("fills never exceed the most") {
  FillLimit limit(3);
  TimePoint now = TimePoint() + 1h;
  for (int i = 0; i < 1000; ++i) limit.completed(kBytes, 1ms, now += 1ms);
  CHECK(limit.value() == 3);
}
