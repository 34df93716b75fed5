#include "cache/catalog/scan_pace.h"

#include <algorithm>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

/// A scan of ten periods of 0.1 s, `rate` entries a second with so many threads.
template <class Rate>
unsigned threads_after(ScanThreads threads, Rate rate) {
  ScanPace pace(threads);
  TimePoint now{};
  double done = 0;
  for (int period = 0; period < 10; ++period) {
    pace.observe(static_cast<uint64_t>(done), now);
    done += 0.1 * rate(pace.threads());
    now += std::chrono::milliseconds(100);
  }
  return pace.threads();
}

}  // namespace

TEST_CASE("a scan gets more threads while each brings its share") {
  CHECK(threads_after({8, 64}, [](unsigned threads) { return 1000.0 * threads; }) == 64);
  CHECK(threads_after({8, 20}, [](unsigned threads) { return 1000.0 * threads; }) == 20);
  CHECK(threads_after({3, 1}, [](unsigned threads) { return 1000.0 * threads; }) == 3);
}

TEST_CASE("a scan stops at twice the threads that its source keeps busy") {
  CHECK(threads_after({8, 64}, [](unsigned) { return 50000.0; }) == 16);
  CHECK(threads_after({4, 64}, [](unsigned threads) { return 1000.0 * std::min(threads, 16U); }) == 32);
  CHECK(threads_after({8, 64}, [](unsigned) { return 0.0; }) == 64);
}

TEST_CASE("calls that come close upon each other say nothing of the rate") {
  ScanPace pace({});
  TimePoint now{};
  for (int i = 0; i < 100; ++i)
    pace.observe(static_cast<uint64_t>(i) * i, now += std::chrono::microseconds(500));
  CHECK(pace.threads() == 8);
}
