// What stays in the page cache of a plan that does not fit there.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "plan/staging/sentinel_chooser.h"
#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace keeping {

constexpr uint64_t kSize = 20000;
constexpr uint64_t kPages = round_to_pages(kSize);
constexpr uint32_t kFiles = 400;
constexpr uint64_t kWindow = 20;  // samples
constexpr uint64_t kEpochs = 4;
constexpr uint64_t kEnd = kEpochs * kFiles;

struct KeepFixture : StagingFixture {
  /// Samples that may stay, and that the RAM tier holds.
  explicit KeepFixture(uint64_t keep, uint64_t ram = 0, const std::string& more = "")
      : StagingFixture({.sizes = std::vector<uint64_t>(kFiles, kSize),
                        .budget = kWindow * kPages,
                        .ram = ram * kPages,
                        .keep = keep * kPages},
                       fmt::format("seed=1 format=files epochs={} ", kEpochs) + more) {}

  /// Reads [from, to), staging having its turns after every `pause` samples only.
  void read(uint64_t from, uint64_t to, uint64_t pause = 1) {
    for (uint64_t p = from; p < to; ++p) {
      if (pause == 1) REQUIRE(settle_until([&] { return staged() > p; }));
      if (p % pause == 0) settle();
      read_next(p);
      most = std::max(most, pages.cached_bytes());
    }
    settle();
  }
  uint64_t kept() const { return static_cast<uint64_t>(metrics.staging_kept.value()); }
  void check_followed() const {
    const TrackerStatus status = run->reader().tracker().status();
    CHECK(status.suspensions == 0);
    CHECK(status.realignments == 0);
    CHECK(status.out_of_order == 0);
  }

  uint64_t most = 0;  // bytes in the page cache
};

TEST_CASE("of a plan that does not fit as much stays as may, and is not pushed again") {
  const uint64_t keep = GENERATE(0ULL, 100ULL, 200ULL, 380ULL, 398ULL);
  CAPTURE(keep);
  KeepFixture f(keep);
  f.read(0, kFiles);
  const size_t once = f.pages.order().size();
  CHECK(f.kept() == keep * kPages);
  f.read(kFiles, kEnd);
  CHECK(f.run->reader().tracker().state() == TrackerState::finished);
  f.check_followed();
  CHECK(f.most <= (keep + 3 * kWindow) * kPages);
  const size_t again = f.pages.order().size() - once;
  CHECK(again <= (kEpochs - 1) * (kFiles - keep + kWindow));
  CHECK(f.source.fetches <= kFiles + (kEpochs - 1) * (kFiles - keep + kFiles / 8));
  // Nothing has a further use.
  CHECK(f.kept() == 0);
  CHECK(f.pages.cached_bytes() <= 2 * kWindow * kPages);
}

TEST_CASE("a reader that overtakes what is pushed is followed past samples that stay") {
  const uint64_t keep = GENERATE(100ULL, 200ULL, 300ULL, 360ULL);
  const uint64_t pause = GENERATE(2ULL, 5ULL, 11ULL);
  CAPTURE(keep, pause);
  KeepFixture f(keep);
  f.read(0, kEnd, pause);
  CHECK(f.run->reader().tracker().state() == TrackerState::finished);
  f.check_followed();
  CHECK(f.most <= (keep + 3 * kWindow) * kPages);
}

TEST_CASE("of a plan that fits also that stays which the reader brought before it was pushed") {
  StagingFixture f({.sizes = std::vector<uint64_t>(kFiles, kSize),
                    .budget = kWindow * kPages,
                    .immediate = false,
                    .keep = kFiles * kPages},
                   "seed=1 format=files epochs=3");
  f.settle();  // nothing arrives
  for (uint64_t p = 0; p < kFiles; ++p) {
    REQUIRE_FALSE(f.read_next(p));
    f.settle();
  }
  REQUIRE(f.settle_until([&] {
    f.source.complete_all();
    return f.staged() >= 2 * uint64_t{kFiles};
  }));
  CHECK(f.pages.order().size() <= kFiles / 50);
}

TEST_CASE("what an earlier plan left of one that fits is not pushed again, and its reader is followed") {
  StagingFixture f(
      {.sizes = std::vector<uint64_t>(kFiles, kSize), .budget = kWindow * kPages, .keep = kFiles * kPages},
      "seed=1 format=files epochs=1");
  f.settle();
  REQUIRE(f.staged() == kFiles);
  f.staging->remove("default");
  f.settle();
  f.run = f.add_plan("seed=2 format=files epochs=2");
  uint64_t seen = 0;
  for (uint64_t p = 0; p < 2 * uint64_t{kFiles}; ++p) {
    REQUIRE(f.settle_until([&] { return f.staged() > p; }));
    seen += f.read_next(p) ? 0 : 1;
  }
  CHECK(f.pages.order().size() <= kFiles + kFiles / 8);  // those whose pages sentinels lacked
  CHECK(seen >= 2 * kFiles / SentinelChooser::kLongestGap);
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.state == TrackerState::finished);
  CHECK(status.out_of_order == 0);
}

TEST_CASE("tiers hold other samples than those that stay in the page cache") {
  constexpr uint64_t kKeep = kFiles / 2;
  constexpr uint64_t kRam = kFiles / 4;
  KeepFixture f(kKeep, kRam);
  f.read(0, kFiles + kFiles / 2);
  const std::vector<ChunkId> in_ram = f.policy.residents(Tier::ram);
  CHECK(in_ram.size() >= kRam);
  // Beside the window none is in the page cache because it stays there.
  const auto twice = std::count_if(in_ram.begin(), in_ram.end(), [&](ChunkId chunk) {
    return f.pages.whole(f.catalog->range(chunk).file);
  });
  CHECK(twice <= static_cast<int64_t>(kWindow));
  f.check_followed();
}

TEST_CASE("what stays of a plan leaves with it, and makes room for a plan that fits") {
  KeepFixture f(200);
  f.read(0, kFiles);
  REQUIRE(f.kept() == 200 * kPages);
  SECTION("it is removed") {
    f.staging->remove("default");
    f.settle();
    CHECK(f.kept() == 0);
    CHECK(f.pages.cached_bytes() == 0);
  }
  SECTION("another one comes") {
    f.add_plan("name=two format=list list='[\"f10000\",\"f10001\",\"f10002\"]' seed=2 epochs=2");
    f.settle();
    CHECK(f.kept() <= 197 * kPages);
    f.read(kFiles, kFiles + 100);
    CHECK(f.kept() == 197 * kPages);
  }
  SECTION("nobody follows it") {
    for (uint32_t i = 0; f.run->reader().tracker().state() != TrackerState::suspended; ++i) {
      REQUIRE(i < 1000);
      f.run->reader().tracker().observe(std::vector{i * 7 % kFiles}, Access::open, f.now);
    }
    f.staging->wake();
    f.settle();
    CHECK(f.kept() == 0);
    CHECK(f.pages.cached_bytes() == 0);
  }
}

TEST_CASE("what the kernel takes back of samples that stay is pushed again") {
  KeepFixture f(300);
  f.read(0, kFiles);
  REQUIRE(f.kept() == 300 * kPages);
  for (uint64_t p = 0; p < kFiles; ++p)
    f.pages.lose(f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file);
  for (uint64_t p = kFiles; p < kEnd; ++p) {
    f.now += 20ms;  // between two looks
    REQUIRE(f.settle_until([&] { return f.staged() > p; }));
    f.read_next(p);
  }
  f.check_followed();
  CHECK(f.metrics.staging_repaired.value() >= 200);
}

/// A plan of records of which some may stay, read one after the other.
struct RecordsKept : StagingFixture {
  static constexpr uint64_t kCount = 400;
  static constexpr uint64_t kRecord = 40000;
  static constexpr uint64_t kRecordPages = round_to_pages(kRecord) + kPageSize;  // at most

  /// Records that may stay, and that the RAM tier holds.
  RecordsKept(uint64_t keep, uint64_t ram)
      : StagingFixture({.sizes = {kCount * kRecord},
                        .budget = 60 * kRecordPages,
                        .ram = ram * kRecordPages,
                        .chunk_size = 64 << 10,
                        .keep = keep * kRecordPages},
                       fmt::format("format=raw file=f10000 record={} seed=3 epochs=3", kRecord)) {}

  void read(uint64_t from, uint64_t to) {
    for (uint64_t p = from; p < to; ++p) {
      REQUIRE(settle_until([&] { return staged() > p; }));
      now += 100us;
      const uint32_t sample = run->reader().timeline().sample_at(p);
      const ByteRange record = run->index().range(sample, 0);
      bool told = false;
      for (const uint64_t page : pages.missing(record.file, record.offset, record.length)) {
        const auto hit = staging->sentinels().take(record.file, page, kPageSize);
        if (hit || !std::exchange(told, true))
          run->reader().tracker().observe(std::vector{hit ? hit->of.sample : sample}, Access::read, now);
        pages.fill(record.file, page, std::min(kPageSize, kCount * kRecord - page));
        REQUIRE(run->prepare().ok());
        staging->wake();
      }
      most = std::max(most, pages.cached_bytes());
    }
    settle();
  }
  uint64_t kept() const { return static_cast<uint64_t>(metrics.staging_kept.value()); }

  uint64_t most = 0;  // bytes in the page cache
};

TEST_CASE("of records that are large those stay, as many as may, that no tier has") {
  const uint64_t keep = GENERATE(0ULL, 150ULL);
  const uint64_t ram = GENERATE(0ULL, 100ULL);
  CAPTURE(keep, ram);
  RecordsKept f(keep, ram);
  f.read(0, RecordsKept::kCount);
  const uint64_t may = keep * RecordsKept::kRecordPages;
  CHECK(f.kept() <= may);
  CHECK(f.kept() + RecordsKept::kRecordPages > may);
  f.read(RecordsKept::kCount, 3 * RecordsKept::kCount);
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.state == TrackerState::finished);
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
  CHECK(f.most <= may + 3 * 60 * RecordsKept::kRecordPages);
  // A quarter of an epoch for windows, sentinels and chunks of which the tier has half.
  const uint64_t records =
      RecordsKept::kCount + 2 * (RecordsKept::kCount - keep - ram) + RecordsKept::kCount / 4;
  CHECK(f.source.bytes <= records * (RecordsKept::kRecord + 2 * kPageSize));
  // Nothing has a further use.
  CHECK(f.kept() == 0);
  CHECK(f.pages.cached_bytes() <= 2 * 60 * RecordsKept::kRecordPages);
}

TEST_CASE("what the kernel takes back of records that stay is pushed again") {
  RecordsKept f(150, 0);
  f.read(0, RecordsKept::kCount);
  REQUIRE(f.kept() > 0);
  f.pages.lose(f.run->index().range(0, 0).file);
  for (uint64_t p = RecordsKept::kCount; p < 2 * RecordsKept::kCount; ++p) {
    f.now += 20ms;  // between two looks
    f.read(p, p + 1);
  }
  CHECK(f.metrics.staging_repaired.value() > 60);  // more than a window has
  CHECK(f.run->reader().tracker().status().suspensions == 0);
}

TEST_CASE("small records stay only if all of them do") {
  const uint64_t size = GENERATE(700ULL, 5001ULL, 30000ULL);
  CAPTURE(size);
  constexpr uint64_t kCount = 1500;
  const uint64_t budget = 60 * (round_to_pages(size) + kPageSize);
  StagingFixture f({.sizes = {kCount * size}, .budget = budget, .keep = kCount * size / 2},
                   fmt::format("format=raw file=f10000 record={} seed=3 epochs=3", size));
  for (uint64_t p = 0; p < 2 * kCount; ++p) {
    REQUIRE(f.settle_until([&] { return f.staged() >= p + 8; }));
    f.now += 100us;
    const ByteRange record = f.run->index().range(f.run->reader().timeline().sample_at(p), 0);
    for (const uint64_t page : f.pages.missing(record.file, record.offset, record.length)) {
      if (const auto hit = f.staging->sentinels().take(record.file, page, kPageSize))
        f.run->reader().tracker().observe(std::vector{hit->of.sample}, Access::read, f.now);
      f.pages.fill(record.file, page, std::min(kPageSize, kCount * size - page));
      REQUIRE(f.run->prepare().ok());
      f.staging->wake();
    }
  }
  f.settle();
  CHECK(f.metrics.staging_kept.value() == 0);
  CHECK(f.run->reader().tracker().status().suspensions == 0);
}

}  // namespace keeping
