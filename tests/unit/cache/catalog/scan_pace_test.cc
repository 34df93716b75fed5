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

TEST_CASE("where each look waits for an answer all threads look from the beginning") {
  using std::chrono::microseconds;
  const auto first = [](ScanThreads threads, ScanProbe probe) { return widened(threads, probe).first; };
  CHECK(first({8, 64}, {4, microseconds(4200), microseconds(60)}) == 64);  // a PFS: 1 ms
  CHECK(first({8, 64}, {4, microseconds(500), microseconds(60)}) == 64);   // a fast network
  CHECK(first({8, 64}, {4, microseconds(60), microseconds(55)}) == 8);     // this machine's memory
  CHECK(first({8, 64}, {4, microseconds(900), microseconds(890)}) == 8);   // a slow processor
  CHECK(first({8, 64}, {0, microseconds(0), microseconds(0)}) == 8);       // nothing was looked at
  CHECK(first({8, 4}, {4, microseconds(4200), microseconds(60)}) == 8);    // as many as are wanted at least
  CHECK(widened({8, 64}, {4, microseconds(4200), microseconds(60)}).most == 64);
}

TEST_CASE("calls that come close upon each other say nothing of the rate") {
  ScanPace pace({});
  TimePoint now{};
  for (int i = 0; i < 100; ++i)
    pace.observe(static_cast<uint64_t>(i) * i, now += std::chrono::microseconds(500));
  CHECK(pace.threads() == 8);
}
