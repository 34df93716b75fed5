#include "net/peers/source_choice.h"

#include <random>
#include <vector>

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr LatencyModel::Prior kPrior{1e-3, 1e9};
const TimePoint kStart = TimePoint{} + 1000s;

double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

TEST_CASE("a path that nobody has tried is what its prior says") {
  const LatencyModel model(kPrior);
  CHECK(seconds(model.latency(kStart)) == Approx(1e-3));
  CHECK(seconds(model.predict(100 << 20, kStart)) == Approx(1e-3 + (100 << 20) / 1e9));
  CHECK(model.bandwidth(kStart) == Approx(1e9));
}

TEST_CASE("latency and bandwidth are found from fetches of mixed queues") {
  LatencyModel model(kPrior);
  std::mt19937 random(1);
  TimePoint now = kStart;
  for (int i = 0; i < 200; ++i) {
    const uint64_t front = 100000 + random() % (8 << 20);
    const double noise = 0.8 + 0.4 * static_cast<double>(random() % 1000) / 1000;
    const double took = (5e-3 + static_cast<double>(front) / 100e6) * noise;
    model.completed(front, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(took)), now);
    now += 10ms;
  }
  CHECK(model.bandwidth(now) == Approx(100e6).epsilon(0.35));
  CHECK(seconds(model.predict(1 << 20, now)) == Approx(5e-3 + (1 << 20) / 100e6).epsilon(0.5));
}

TEST_CASE("fetches that are all alike are predicted as they were") {
  LatencyModel model(kPrior);
  for (int i = 0; i < 50; ++i) model.completed(110000, 50ms, kStart + i * 10ms);
  const TimePoint now = kStart + 500ms;
  CHECK(seconds(model.predict(110000, now)) == Approx(0.05).epsilon(0.1));
  CHECK(model.predict(220000, now) >= model.predict(110000, now));
}

TEST_CASE("no prediction is negative or falls with the queue, whatever was seen") {
  std::mt19937 random(2);
  for (int round = 0; round < 200; ++round) {
    LatencyModel model(kPrior);
    TimePoint now = kStart;
    for (int i = 0; i < 30; ++i) {
      model.completed(random() % (16 << 20), std::chrono::microseconds(random() % 3000000), now);
      now += std::chrono::milliseconds(random() % 2000);
      CHECK(model.predict(0, now) >= 0s);
      CHECK(model.predict(16 << 20, now) >= model.predict(0, now));
      CHECK(model.bandwidth(now) > 0);
    }
  }
}

TEST_CASE("a slow path is seen as slow at once, and tried again some time later") {
  LatencyModel model(kPrior);
  for (int i = 0; i < 20; ++i) model.completed(110000, 1ms, kStart + i * 10ms);
  for (int i = 0; i < 8; ++i) model.completed(110000, 2s, kStart + i * 500ms);
  CHECK(seconds(model.predict(110000, kStart + 4s)) > 0.7);
  CHECK(seconds(model.predict(110000, kStart + 9s)) > 0.5);
  CHECK(seconds(model.predict(110000, kStart + 60s)) < 0.02);
}

TEST_CASE("a hundred fetches that a moment's standstill made late do not make a path slow") {
  LatencyModel model(kPrior);
  for (int i = 0; i < 20; ++i) model.completed(110000, 1ms, kStart + i * 10ms);
  for (int i = 0; i < 100; ++i) model.completed(110000, 300ms, kStart + 500ms + i * 10us);
  CHECK(seconds(model.predict(110000, kStart + 501ms)) < 0.1);
}

TEST_CASE("one fetch that hung for long does not count more than a slow one") {
  LatencyModel hung(kPrior);
  LatencyModel slow(kPrior);
  hung.completed(110000, 10min, kStart);
  slow.completed(110000, 5s, kStart);
  CHECK(hung.predict(0, kStart) == slow.predict(0, kStart));
}

TEST_CASE("a path is slow when nothing but slow fetches came for seconds") {
  SlowPeerDetector watch(500ms);
  CHECK(!watch.slow());
  for (int i = 0; i < 100; ++i) watch.completed(2s, kStart);  // one standstill
  CHECK(!watch.slow());
  watch.completed(1s, kStart + 2s);
  CHECK(!watch.slow());
  watch.completed(1s, kStart + 4s);
  CHECK(watch.slow());
  CHECK(!watch.take_trial(kStart + 5s));
  CHECK(watch.take_trial(kStart + 10s));
  CHECK(!watch.take_trial(kStart + 11s));
  watch.completed(1s, kStart + 12s);
  CHECK(watch.slow());
  CHECK(watch.take_trial(kStart + 20s));
  watch.completed(10ms, kStart + 20s);
  CHECK(!watch.slow());
}

TEST_CASE("the fastest holder is asked, the PFS only where it is far faster than slow holders") {
  const FallbackRule rule;
  const auto choose = [&](std::vector<HolderPath> holders, Duration pfs) {
    return choose_source(holders, pfs, rule);
  };
  CHECK(choose({}, 1ms) == std::nullopt);
  CHECK(choose({{3ms}, {2ms}, {5ms}}, 1ms) == 1);
  CHECK(choose({{2s}}, 1ms) == 0);  // a moment's standstill
  CHECK(choose({{2s, true}}, 1ms) == std::nullopt);
  CHECK(choose({{2s, true}}, 600ms) == 0);  // the PFS is slow itself
  CHECK(choose({{3s, true}, {2s, true}}, 50ms) == std::nullopt);
  CHECK(choose({{3s, true}, {20ms}}, 50ms) == 1);
}
