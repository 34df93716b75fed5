#include "cache/source/concurrency_limit.h"

#include <cmath>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// Runs `operations` against a source whose throughput at limit k is `rate(k)`, in virtual time.
template <class Rate>
double average_limit(ConcurrencyLimit& limit, int operations, Rate rate) {
  TimePoint now{};
  double sum = 0;
  for (int i = 0; i < operations; ++i) {
    now += std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1e5 / rate(limit.value())));
    limit.completed(100000, true, now);
    if (i >= operations / 2) sum += limit.value();
  }
  return sum / (operations - operations / 2);
}

}  // namespace

TEST_CASE("the limit grows while more operations bring more throughput") {
  ConcurrencyLimit limit(8, 2, 64);
  CHECK(average_limit(limit, 20000, [](unsigned k) { return 1e8 * k; }) > 50);
}

TEST_CASE("the limit shrinks where more operations make the source slower") {
  ConcurrencyLimit limit(32, 2, 64);
  CHECK(average_limit(limit, 20000, [](unsigned k) { return 1e9 / k; }) < 6);
}

TEST_CASE("the limit settles around the best value") {
  ConcurrencyLimit limit(4, 2, 64);
  const double mean =
      average_limit(limit, 50000, [](unsigned k) { return 1e9 - 1e6 * std::pow(k - 20.0, 2); });
  CHECK(mean > 12);
  CHECK(mean < 30);
}

TEST_CASE("an idle source says nothing about its limit") {
  ConcurrencyLimit limit(8, 2, 64);
  TimePoint now{};
  for (int i = 0; i < 1000; ++i) limit.completed(100, false, now += std::chrono::milliseconds(1));
  CHECK(limit.value() == 8);
}

TEST_CASE("the limit doubles at first, while that brings more") {
  ConcurrencyLimit limit(4, 4, 64);
  average_limit(limit, 2 * (4 + 8 + 16 + 32), [](unsigned k) { return 1e8 * k; });
  CHECK(limit.value() == 64);
}

TEST_CASE("a source that four keep busy gets no more than eight to begin with") {
  ConcurrencyLimit limit(4, 4, 64);
  average_limit(limit, 2 * (4 + 8), [](unsigned) { return 1e8; });
  CHECK(limit.value() == 8);
}
