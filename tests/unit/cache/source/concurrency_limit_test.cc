#include "cache/source/concurrency_limit.h"

#include <cmath>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr double kOperationBytes = 100000;

/// How long an operation takes where `limit` at once bring `rate` bytes per second (Little's law).
Duration took(unsigned limit, double rate) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(limit * kOperationBytes / rate));
}

/// Runs `operations` against a source whose throughput at limit k is `rate(k)`.
template <class Rate>
double average_limit(ConcurrencyLimit& limit, int operations, Rate rate) {
  double sum = 0;
  for (int i = 0; i < operations; ++i) {
    limit.completed(took(limit.value(), rate(limit.value())), true);
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
  for (int i = 0; i < 1000; ++i) limit.completed(std::chrono::milliseconds(1), false);
  CHECK(limit.value() == 8);
}

TEST_CASE("the limit doubles at first, while that brings more") {
  ConcurrencyLimit limit(4, 4, 64);
  // A window of one round at each limit, and one more after each change.
  average_limit(limit, 4 + 2 * (4 + 8 + 16) + 32 + 8, [](unsigned k) { return 1e8 * k; });
  CHECK(limit.value() == 64);
}

TEST_CASE("a source that four keep busy gets no more than eight to begin with") {
  ConcurrencyLimit limit(4, 4, 64);
  average_limit(limit, 4 + 4 + 2 * 8, [](unsigned) { return 1e8; });
  CHECK(limit.value() == 8);
}

TEST_CASE("one window in which all was slow does not end the doubling") {
  ConcurrencyLimit limit(4, 4, 64);
  for (int i = 0; i < 4 + 4 + 8; ++i) limit.completed(std::chrono::milliseconds(i < 8 ? 10 : 40), true);
  CHECK(limit.value() == 8);
  for (int i = 0; i < 8; ++i) limit.completed(std::chrono::milliseconds(10), true);
  CHECK(limit.value() == 16);
}

TEST_CASE("the limit grows though the end of most operations is seen late") {
  // As where a training job wants all processors: the source answers all after 10 ms.
  std::mt19937 random(1);
  std::exponential_distribution<double> late(1 / 0.030);
  std::bernoulli_distribution seen_late(0.6);
  ConcurrencyLimit limit(4, 4, 64);
  double sum = 0;
  for (int i = 0; i < 5000; ++i) {
    const double seconds = 0.010 + (seen_late(random) ? late(random) : 0);
    limit.completed(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)), true);
    sum += limit.value();
  }
  CHECK(sum / 5000 > 40);
}
