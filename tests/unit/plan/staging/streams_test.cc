// Staging over shards that are read from front to back, several at a time.
#include <algorithm>
#include <deque>
#include <random>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kRead = 128 << 10;  // a READ of what is not there

/// Workers that read the shards of their streams, each at its own speed.
struct StreamsFixture : StagingFixture {
  StreamsFixture(const std::vector<uint64_t>& sizes, const std::string& plan, uint64_t budget, uint64_t ram,
                 uint32_t chunk = 1 << 20, bool at_once = true)
      : StagingFixture(
            {.sizes = sizes, .budget = budget, .ram = ram, .chunk_size = chunk, .immediate = at_once}, plan),
        places(run->readers().size()) {}

  /// The worker of a stream reads its next `bytes`, up to the end of the stripe; false at the end of the
  /// plan.
  bool read(size_t stream, uint64_t bytes) {
    Place& at = places[stream];
    const PlanReader& reader = run->reader(stream);
    while (*run->prepare()) {
    }
    const Timeline timeline = reader.timeline();
    if (at.position >= timeline.end()) return false;
    const ByteRange stripe = run->index().range(timeline.sample_at(at.position), 0);
    const uint64_t end = std::min(at.offset + bytes, stripe.length);
    now += std::chrono::microseconds(100);
    // The kernel asks for what is missing, in READs of neighbouring pages.
    const auto missing = pages.missing(stripe.file, stripe.offset + at.offset, end - at.offset);
    for (size_t i = 0; i < missing.size();) {
      size_t next = i + 1;
      while (next < missing.size() && missing[next] == missing[next - 1] + kPageSize &&
             missing[next] - missing[i] < kRead)
        ++next;
      request(stream, stripe.file, missing[i], (next - i) * kPageSize);
      i = next;
    }
    at.offset = end;
    if (at.offset == stripe.length) at = {at.position + 1, 0};
    return true;
  }

  void request(size_t stream, FileId file, uint64_t offset, uint64_t length) {
    ++requests;
    length = std::min(length, catalog->stamp(file).size - offset);
    const auto hit = staging->sentinels().take(file, offset, length);
    if (!hit) ++unseen;
    const std::vector<uint32_t> samples =
        hit ? std::vector{hit->of.sample} : run->samples_of(file, offset, length);
    const ThreadId thread(static_cast<uint32_t>(stream) + 1);
    auto seen = run->offer(thread, samples, Access::read, now);
    if (seen.verdict == Tracker::Verdict::out_of_order)
      seen = run->observe(thread, samples, Access::read, now);
    if (!hit || !hit->bytes) cache->read(file, offset, length, [](const Result<ReadView>&) {});
    source.complete_all();
    pages.fill(file, offset, length);
    staging->wake();
  }

  struct Place {
    uint64_t position = 0;
    uint64_t offset = 0;  // in the stripe
  };
  std::vector<Place> places;  // by stream
  uint64_t requests = 0;
  uint64_t unseen = 0;  // of no sentinel
};

std::vector<uint64_t> shards(size_t count, uint64_t mean) {
  std::mt19937 random(1);
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < count; ++i) sizes.push_back(mean / 2 + random() % mean);
  return sizes;
}

}  // namespace

TEST_CASE("streams are each followed to the end, however far apart they drift") {
  const int workers = GENERATE(1, 2, 4);
  const bool drift = GENERATE(false, true);
  CAPTURE(workers, drift);
  const auto sizes = shards(24, 6 * kMiB);
  StreamsFixture f(sizes, fmt::format("format=shards seed=2 epochs=2 workers={}", workers), 24 * kMiB, 0);
  REQUIRE(f.run->readers().size() == static_cast<size_t>(workers));
  CHECK(f.pages.records_expected() == RecordPlans::none);
  f.settle();
  uint64_t most_cached = 0;
  for (bool any = true; any;) {
    any = false;
    for (size_t stream = 0; stream < f.places.size(); ++stream) {
      // One of them is at its end before another has begun.
      const uint64_t pieces = drift ? (stream == 0 ? 64 : 1) : 4;
      for (uint64_t i = 0; i < pieces; ++i) {
        f.settle();
        any = f.read(stream, 200'000) || any;
      }
      most_cached = std::max(most_cached, f.pages.cached_bytes());
    }
  }
  f.settle();
  const TrackerStatus status = f.run->status();
  CHECK(status.state == TrackerState::finished);
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
  CHECK(status.out_of_order == 0);
  // All that a reader asks for are sentinels. But a shard that another worker has read at the end of the
  // epoch before can have none: who begins the next epoch with it may run through its window unseen.
  CHECK(f.unseen <= static_cast<uint64_t>(workers == 1 ? 0 : kMiB / kRead + 4));
  CHECK(f.requests >= 8);
  CHECK(most_cached <= 24 * kMiB + static_cast<uint64_t>(workers) * 12 * kMiB);
}

TEST_CASE("streams of which a window holds all that there is are followed to the end") {
  const uint64_t budget = GENERATE(64, 128) * kMiB;  // not quite, and all of it
  StreamsFixture f(shards(12, 5 * kMiB), "format=shards sampler=webdataset epochs=3 workers=4", budget, 0);
  for (bool any = true; any;) {
    any = false;
    for (size_t stream = 0; stream < f.places.size(); ++stream) {
      f.settle();
      any = f.read(stream, 200'000) || any;
    }
  }
  f.settle();
  CHECK(f.run->status().state == TrackerState::finished);
  CHECK(f.unseen == 0);
}

TEST_CASE("each stripe is read from the source once, also by readers that are as fast as it") {
  // Nothing is kept, so whatever is asked for twice is read twice.
  const auto sizes = shards(16, 8 * kMiB);
  uint64_t total = 0;
  for (const uint64_t size : sizes) total += size;
  StreamsFixture f(sizes, "format=shards seed=2 epochs=1 workers=2", 16 * kMiB, 0, 4 << 20);
  // The readers never wait for staging, which gets a turn now and then.
  std::mt19937 random(3);
  for (bool any = true; any;) {
    any = false;
    for (size_t stream = 0; stream < 2; ++stream) {
      if (random() % 4 == 0) f.staging->step(f.now);
      any = f.read(stream, kRead) || any;
    }
  }
  f.settle();
  CHECK(f.run->status().state == TrackerState::finished);
  CHECK(f.run->status().suspensions == 0);
  CHECK(f.source.bytes <= total + total / 10);
}

TEST_CASE("the rest of a stripe that is being read is pushed if it was asked for") {
  constexpr uint64_t kStripe = 4 * kMiB;
  StreamsFixture f({8 * kMiB}, "format=shards shuffle=false epochs=1", 16 * kMiB, 0, kStripe, false);
  f.settle();
  REQUIRE(f.source.pending() > 0);
  CHECK(f.read(0, kRead));  // comes before staging has it, and waits for the same fetch
  f.settle();
  while (f.places[0].position == 0) f.read(0, kRead);
  CHECK(f.requests <= 2);                // the first, and the sentinel in the middle
  CHECK(f.source.bytes % kStripe == 0);  // no part of it was read again
}

TEST_CASE("what staging has not asked for is left to who reads it") {
  constexpr uint64_t kStripe = 4 * kMiB;
  // No window: nothing fits it.
  StreamsFixture f({8 * kMiB, 8 * kMiB}, "format=shards shuffle=false epochs=1", kMiB, 0, kStripe);
  while (f.read(0, kRead)) f.settle();
  CHECK(f.source.bytes == 16 * kMiB);
  CHECK(f.run->status().suspensions == 0);
}

TEST_CASE("a reader that has enough of a shard goes on with the next one") {
  constexpr uint64_t kStripes = 24;  // of a shard
  const std::vector<uint64_t> sizes(48, kStripes * kMiB);
  StreamsFixture f(sizes, "format=shards seed=2 epochs=1 workers=2", 16 * kMiB, 0);
  uint64_t left = 0;
  for (bool any = true; any;) {
    any = false;
    for (size_t stream = 0; stream < 2; ++stream) {
      f.settle();
      any = f.read(stream, 300'000) || any;
      auto& at = f.places[stream];
      if (at.position % kStripes == 5 && at.position / kStripes % 6 != 0) {
        at = {at.position / kStripes * kStripes + kStripes, 0};
        ++left;
      }
    }
  }
  CHECK(left > 30);
  CHECK(f.run->status().suspensions == 0);
  CHECK(f.run->status().realignments == 0);
  CHECK(f.run->status().out_of_order == 0);
}

TEST_CASE("the sentinel of a stripe is in its middle") {
  const auto catalog = made_up_catalog({9 * kMiB, 100, 4096 * 5}, 4 << 20);
  DatasetSource source;
  source.catalog = catalog;
  const auto run = PlanRun::make(parse_plan("format=shards shuffle=false").value(), source, {}).value();
  const PageLedger ledger(run->index(), *catalog, false);
  using Pages = std::vector<PageRange>;
  CHECK(ledger.sentinel_pages(0) == Pages{{FileId(1), 2 * kMiB, 2 * kMiB + 4096}});
  CHECK(ledger.sentinel_pages(2) == Pages{{FileId(1), 8 * kMiB + kMiB / 2, 8 * kMiB + kMiB / 2 + 4096}});
  CHECK(ledger.sentinel_pages(3) == Pages{{FileId(2), 0, 100}});
  CHECK(ledger.sentinel_pages(4) == Pages{{FileId(3), 8192, 12288}});
}
