#include "plan/staging/staging.h"

#include <set>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

TEST_CASE("the window is pushed in the order of the plan and no further than the budget") {
  constexpr uint64_t kSize = 20000;
  constexpr uint64_t kBudget = 40 * round_to_pages(kSize);
  StagingFixture f(200, kSize, "seed=1 format=files epochs=2", kBudget, 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") == 40; }));
  f.settle();
  CHECK(f.staging->ahead("default") == 40);
  CHECK(f.pages.cached_bytes() <= kBudget);
  const Timeline timeline = f.run->reader().timeline();
  const auto order = f.pages.order();
  for (size_t i = 0; i < order.size(); ++i) {
    CHECK(order[i] == f.run->index().range(timeline.sample_at(i), 0).file);
  }
}

TEST_CASE("the window moves with the reader over epochs, and what was read is dropped") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 300;
  const uint64_t ram = GENERATE(0ULL, 100ULL * 20480, 1000ULL * 20480);
  StagingFixture f(kFiles, kSize, "seed=1 format=files epochs=3", 50 * round_to_pages(kSize), ram);
  uint64_t seen = 0;
  for (uint64_t p = 0; p < 3 * kFiles; ++p) {
    // A reader that waits for the window never gets ahead of it.
    REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= 10 || p + 50 > 3 * kFiles; }));
    seen += f.read_next(p) ? 0 : 1;
    CHECK(f.pages.cached_bytes() <=
          120 * round_to_pages(kSize));  // the window, and what the tracker is not yet sure of
  }
  CHECK(f.run->reader().tracker().status().suspensions == 0);
  CHECK(f.run->reader().tracker().status().out_of_order == 0);
  CHECK(seen < 3 * kFiles / 3);
  CHECK(f.settle_until([&] { return f.pages.drops() > 2 * kFiles; }));
  if (ram > kFiles * 20480ULL) CHECK(f.source.fetches == kFiles);
}

TEST_CASE("a window of half the dataset and more loses no sentinels to samples that are there already") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 512;
  constexpr uint64_t kWindow = 300;
  constexpr uint64_t kGap = kWindow / 8;
  constexpr uint64_t kEnd = uint64_t{4} * kFiles;
  StagingFixture f(kFiles, kSize, "seed=1 format=files epochs=4", kWindow * round_to_pages(kSize), 0);
  uint64_t unseen = 0;
  uint64_t longest = 0;
  const auto window_is_full = [&] {
    return f.staged() >= std::min(f.run->reader().tracker().high_water() + kWindow, kEnd);
  };
  for (uint64_t p = 0; p < kEnd; ++p) {
    REQUIRE(f.settle_until(window_is_full));
    unseen = f.read_next(p) ? unseen + 1 : 0;
    longest = std::max(longest, unseen);
  }
  // Up to the first sample that is not skipped: of these at least two in five.
  CHECK(longest <= kGap + 20);
  CHECK(f.run->reader().tracker().status().out_of_order == 0);
}

TEST_CASE("a sample that is asked for later is not fetched earlier") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 300;
  StagingFixture f(kFiles, kSize, "seed=1 format=files epochs=1", 50 * round_to_pages(kSize), 0);
  for (uint64_t p = 0; p < kFiles; ++p) {
    REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= 10 || p + 50 > kFiles; }));
    f.read_next(p);
    if (p % 20 == 0) f.now += 2ms;  // a reader whose pace changes
  }
  const std::vector<uint64_t> deadlines = f.source.deadlines();
  CHECK(deadlines.size() > kFiles / 2);
  CHECK(std::is_sorted(deadlines.begin(), deadlines.end()));
}

TEST_CASE("whoever begins later gets its first samples before the others get full windows") {
  constexpr uint32_t kFiles = 300;
  StagingFixture f(kFiles, 20000, "seed=1 format=files epochs=1", 250 * round_to_pages(20000), 0);
  REQUIRE(f.settle_until([&] { return f.source.deadlines().size() >= 250; }));
  const std::vector<uint64_t> deadlines = f.source.deadlines();
  const uint64_t now = deadline_at(f.now);
  // That of a first batch of another node, which begins a tenth of a second later.
  CHECK(deadlines[32] > deadlines[0] + 300'000);
  // It holds for good, so it must not be far off.
  CHECK(deadlines[249] <= now + 1'000'000);
}

TEST_CASE("a reader that seems slow at first does not come behind all others for long") {
  constexpr uint32_t kFiles = 300;
  StagingFixture f(kFiles, 20000, "seed=1 format=files epochs=1", 200 * round_to_pages(20000), 0);
  REQUIRE(f.settle_until([&] { return f.source.deadlines().size() >= 200; }));
  f.source.complete_all();
  for (uint64_t p = 0; p < 4; ++p) {
    REQUIRE(f.settle_until([&] { return f.staging->ahead("default") > 0; }));
    f.read_next(p);
    f.now += 90ms;
  }
  REQUIRE(f.settle_until([&] { return f.source.deadlines().size() > 200; }));
  CHECK(f.source.deadlines().back() <= deadline_at(f.now) + 1'000'000);
}

TEST_CASE("what workers have passed over and not opened is still pushed, once") {
  constexpr uint32_t kFiles = 60;
  constexpr uint32_t kBatch = 8;
  // The window ends within the second worker's batch.
  const uint64_t window = GENERATE(12, 100);
  StagingFixture f(
      {std::vector<uint64_t>(kFiles, 20000), window * round_to_pages(20000), 0, 0, 4 << 20, false},
      "seed=1 format=files epochs=1 batch=8 workers=4");
  REQUIRE(f.settle_until([&] { return f.source.pending() >= std::min<uint64_t>(window, 32); }));
  std::set<FileId> opened;
  const auto file_at = [&](uint64_t position) {
    return f.run->index().range(f.run->reader().timeline().sample_at(position), 0).file;
  };
  for (uint32_t worker = 0; worker < 4; ++worker) {
    REQUIRE_FALSE(f.read_next(uint64_t{worker} * kBatch));
    opened.insert(file_at(uint64_t{worker} * kBatch));
  }
  const auto pushes_are_beyond_the_front = [&] {
    f.source.complete_all();
    return f.staging->ahead("default") > 0;
  };
  REQUIRE(f.settle_until(pushes_are_beyond_the_front));
  const auto order = f.pages.order();
  std::map<FileId, int> pushes;
  for (const FileId file : order) ++pushes[file];
  for (uint64_t p = 0; p < uint64_t{3} * kBatch; ++p) {
    const FileId file = file_at(p);
    CAPTURE(p);
    CHECK(pushes[file] <= 1);
    CHECK((pushes[file] == 1 || opened.contains(file)));
  }
}

TEST_CASE("what workers have passed over has no more sentinels than the rest") {
  constexpr uint32_t kBatch = 128;
  constexpr uint64_t kWindow = 300;  // ends within the third worker's batch; one sentinel in 37 samples
  StagingFixture f(
      {std::vector<uint64_t>(1000, 20000), kWindow * round_to_pages(20000), 0, 0, 4 << 20, false},
      "seed=1 format=files epochs=1 batch=128 workers=4");
  REQUIRE(f.settle_until([&] { return f.source.pending() > 0; }));
  for (uint64_t worker = 0; worker < 4; ++worker) REQUIRE_FALSE(f.read_next(worker * kBatch));
  REQUIRE(f.settle_until([&] {
    f.source.complete_all();
    return f.staging->ahead("default") > 0;
  }));
  CHECK(f.metrics.staging_sentinels.value() < 3 * kBatch / 8);
}

TEST_CASE("the end of a plan leaves what other workers have still to open") {
  constexpr uint32_t kFiles = 32;
  StagingFixture f({std::vector<uint64_t>(kFiles, 20000), 100 * round_to_pages(20000), 0, 0, 4 << 20, false},
                   "seed=1 format=files epochs=1 batch=8 workers=4");
  REQUIRE(f.settle_until([&] { return f.source.pending() == kFiles; }));
  for (uint64_t p = 24; p < kFiles; ++p) REQUIRE_FALSE(f.read_next(p, false));
  REQUIRE(f.run->reader().tracker().state() == TrackerState::finished);
  REQUIRE(f.settle_until([&] {
    f.source.complete_all();
    const uint64_t sentinels = f.metrics.staging_sentinels.value();
    return f.pages.order().size() == 24 &&
           f.pages.cached_bytes() == (24 - sentinels) * 20000 + sentinels * 16384;
  }));
  CHECK(f.source.fetches == kFiles);
}

TEST_CASE("samples larger than the transit memory are staged in pieces") {
  constexpr uint32_t kChunk = 64 << 10;
  const uint64_t size = 2 * TransitShares::for_chunks(kChunk).capacity + 12345;
  StagingFixture f(3, size, "seed=1 format=files epochs=1", 2 * round_to_pages(size), 0, kChunk);
  CHECK(f.settle_until([&] { return f.staging->ahead("default") == 2; }));
  CHECK(f.metrics.transit_bytes.value() <= f.metrics.transit_capacity.value());
}

TEST_CASE("full windows leave the memory to fetch with to those that are not full") {
  constexpr uint64_t kSize = 2 << 20;  // four fill what may be in flight
  constexpr uint64_t kRanks = 8;
  constexpr uint64_t kWindow = 2;  // samples of each
  StagingFixture f(4 * kRanks, kSize, "seed=1 format=files epochs=1 world=8 ranks_per_node=8",
                   kRanks * kWindow * kSize, 0, kSize);
  REQUIRE(f.run->readers().size() == kRanks);
  f.settle();  // nobody reads
  for (size_t rank = 0; rank < kRanks; ++rank) {
    CAPTURE(rank);
    CHECK(f.staging->ahead("default", rank) == kWindow);
  }
}

TEST_CASE("a sample larger than the budget is left to the reader and does not stop the others") {
  StagingFixture f(20, 100000, "seed=1 format=files epochs=1", 50000, 0);
  // One at a time: what lies before the reader's next sample counts as handed on.
  CHECK(f.settle_until([&] { return f.staging->ahead("default") == 1; }));
  f.settle();
  CHECK(f.staging->ahead("default") == 1);
  CHECK(f.source.fetches == 0);
  CHECK(f.pages.order().empty());
}

TEST_CASE("a dataset that fits the budget is pushed once and not dropped") {
  constexpr uint32_t kFiles = 50;
  StagingFixture f(kFiles, 20000, "seed=1 format=files epochs=3", 1 << 24, 0);
  for (uint64_t p = 0; p < 3 * kFiles; ++p) {
    REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= 1; }));
    f.read_next(p);
  }
  std::set<FileId> once;
  for (const FileId file : f.pages.order()) once.insert(file);
  CHECK(once.size() == kFiles);
  CHECK(f.source.fetches <= kFiles + 10);  // only sentinels, whose pages are missing, are fetched again
}

TEST_CASE("a sentinel whose page was dropped before the answer of an earlier READ is dropped again") {
  constexpr uint32_t kFiles = 50;
  // In order, so that the last sample of each epoch, always a sentinel, is the last of the next one.
  StagingFixture f(kFiles, 20000, "sampler=torch.sequential format=files epochs=3", 1 << 24, 0);
  for (uint64_t p = 0; p < 3 * kFiles; ++p) {
    const uint64_t left = 3 * kFiles - p;
    REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= std::min<uint64_t>(kFiles, left); }));
    const FileId file = f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
    if (p % kFiles == kFiles - 1) REQUIRE(f.settle_until([&] { return !f.pages.whole(file); }));
    if (f.read_next(p, false)) continue;
    // The answer comes when staging has gone on to the sample's next use.
    const uint64_t next = std::min<uint64_t>(kFiles, left - 1);
    REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= next; }));
    f.pages.fill(file);
    CHECK((p % kFiles != kFiles - 1 || f.run->reader().tracker().high_water() == p + 1));
  }
  CHECK(f.run->reader().tracker().state() == TrackerState::finished);
}

TEST_CASE("what arrives while others are pushed is not pushed before the tracker knows") {
  constexpr uint32_t kFiles = 128;  // one sentinel in 16, beyond what a tracker bears where nothing is pushed
  StagingFixture f(
      {std::vector<uint64_t>(kFiles, 20000), kFiles * round_to_pages(20000), 0, 0, 4 << 20, false},
      "seed=1 format=files epochs=1");
  f.settle();  // all are asked for that may be
  f.pages.on_push = [&f] { f.source.complete_one(); };
  REQUIRE(f.source.complete_one());
  uint64_t read = 0;
  uint64_t unseen = 0;
  for (uint32_t turns = 0; read < kFiles; ++turns) {
    REQUIRE(turns < kFiles);
    (void)f.staging->step(f.now);
    // The reader is through with what was pushed before the next turn begins.
    for (; read < f.staged(); ++read) unseen += f.read_next(read) ? 1 : 0;
  }
  CHECK(unseen > kFiles * 3 / 4);
  CHECK(f.run->reader().tracker().status().out_of_order == 0);
  CHECK(f.run->reader().tracker().state() == TrackerState::finished);
}

TEST_CASE("what the reader opens while others are pushed is not pushed any more") {
  constexpr uint64_t kRead = 10;
  StagingFixture f({std::vector<uint64_t>(64, 20000), 64 * round_to_pages(20000), 0, 0, 4 << 20, false},
                   "seed=1 format=files epochs=1");
  f.settle();
  f.source.complete_all();
  uint64_t read = 0;
  f.pages.on_push = [&] {
    for (; read < kRead; ++read) f.read_next(read);
  };
  (void)f.staging->step(f.now);
  REQUIRE(f.run->reader().tracker().high_water() == kRead);
  const auto order = f.pages.order();
  REQUIRE(order.size() > 1);
  const auto file_at = [&](uint64_t position) {
    return f.run->index().range(f.run->reader().timeline().sample_at(position), 0).file;
  };
  CHECK(order[0] == file_at(0));
  CHECK(order[1] == file_at(kRead));
}

TEST_CASE("a dataset that may be kept stays in the page cache, however small the window") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 100;
  constexpr uint64_t kWindow = 10;
  const uint64_t pages = round_to_pages(kSize);
  const auto left_after_reading = [&](uint64_t keep) {
    StagingFixture f({std::vector<uint64_t>(kFiles, kSize), kWindow * pages, 0, 0, 4 << 20, true, keep},
                     "seed=1 format=files epochs=3");
    for (uint64_t p = 0; p < 3 * kFiles; ++p) {
      REQUIRE(f.settle_until([&] { return f.staged() > p; }));
      f.read_next(p);
    }
    f.settle();
    return f.pages.cached_bytes();
  };
  CHECK(left_after_reading(kFiles * pages) == kFiles * kSize);
  CHECK(left_after_reading(kFiles * pages - 1) <= kWindow * kSize);
}

TEST_CASE("what one plan keeps leaves the window to another that may not stay") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 100;
  constexpr uint64_t kWindow = 10;
  const uint64_t pages = round_to_pages(kSize);
  StagingFixture f(
      {std::vector<uint64_t>(kFiles, kSize), kWindow * pages, 0, 0, 4 << 20, true, kFiles * pages},
      "name=one seed=1 format=files epochs=2");
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") >= kFiles; }));
  f.add_plan("name=two seed=2 format=files epochs=2");
  REQUIRE(f.settle_until([&] { return f.staging->ahead("two") == kWindow; }));
  f.settle();
  CHECK(f.staging->ahead("two") == kWindow);
}

TEST_CASE("two datasets of which each fits the budget stay within it together") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 100;
  StagingFixture f(kFiles, kSize, "name=one seed=1 format=files epochs=2", 150 * round_to_pages(kSize), 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") >= kFiles; }));
  const auto other = f.add_plan("name=two seed=2 format=files epochs=2");
  REQUIRE(f.settle_until([&] { return f.staging->ahead("two") == 50; }));
  f.settle();
  CHECK(f.staging->ahead("two") == 50);
}

TEST_CASE("a plan that is removed stops pushing, and its cache goes back to first touch") {
  StagingFixture f(100, 20000, "seed=1 format=files", 10 * round_to_pages(20000), 1 << 24);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") == 10; }));
  f.staging->remove("default");
  CHECK(f.staging->ahead("default") == 0);
  CHECK(f.policy.choose_tier(ChunkId(0), 20480, {1 << 20, 0}, {}).tier == Tier::ram);
}

TEST_CASE("nothing lies ahead of a reader that has left its plan") {
  constexpr uint32_t kFiles = 400;
  constexpr uint64_t kWindow = 100;
  StagingFixture f(kFiles, 20000, "sampler=torch.sequential format=files epochs=2",
                   kWindow * round_to_pages(20000), 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") == kWindow; }));
  Tracker& tracker = f.run->reader().tracker();
  // Far from what is expected, and backwards.
  for (uint32_t i = 1; tracker.state() != TrackerState::suspended; ++i) {
    REQUIRE(i < 50);
    tracker.observe(std::vector{kFiles - 7 * i}, Access::read, f.now);
  }
  REQUIRE(tracker.high_water() == 0);
  REQUIRE(f.staging->ahead("default") == kWindow);
  f.settle();
  CHECK(f.pages.cached_bytes() == 0);
  CHECK(f.staging->ahead("default") == 0);
}

TEST_CASE("what is staged for its last use is kept where there is free memory, and replaces nothing") {
  constexpr uint64_t kChunk = round_to_pages(20000);
  const bool roomy = GENERATE(false, true);
  StagingFixture f(100, 20000, "seed=1 format=files epochs=1", 10 * kChunk, (roomy ? 200 : 30) * kChunk);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") == 10; }));
  f.settle();
  const Timeline timeline = f.run->reader().timeline();
  for (uint64_t p = 0; p < 100; ++p) {
    INFO(p << (roomy ? ", roomy" : ""));
    const ChunkId chunk = f.catalog->chunks(f.run->index().range(timeline.sample_at(p), 0).file).first;
    CHECK(f.cache->tier_of(chunk) == (roomy || p < 30 ? Tier::ram : Tier::none));  // what comes next fills it
    const Tier on_nvme = f.policy.choose_tier(chunk, 20480, {0, 1 << 20}, {}).tier;
    CHECK(on_nvme == (p < 10 ? Tier::none : Tier::nvme));
  }
}

TEST_CASE("what a plan that was found for one epoch reads is kept as without a plan") {
  StagingFixture f(100, 20000, "name=auto seed=1 format=files epochs=1", 10 * round_to_pages(20000), 1 << 24);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("auto") == 10; }));
  f.settle();
  for (const uint64_t p : {0, 9, 50, 99}) {
    const FileId file = f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
    CHECK(f.cache->tier_of(f.catalog->chunks(file).first) == Tier::ram);
    // What a plan has no further use for would not be written there.
    CHECK(f.policy.choose_tier(f.catalog->chunks(file).first, 20480, {0, 1 << 20}, {}).tier == Tier::nvme);
  }
}

TEST_CASE("the budget is of whole pages, of which small samples take more than their bytes") {
  constexpr uint64_t kPages = 100;
  StagingFixture f(4 * kPages, 500, "seed=1 format=files epochs=2", kPages * kPageSize, 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") == kPages; }));
  f.settle();
  CHECK(f.staging->ahead("default") == kPages);
  CHECK(f.metrics.staging_bytes.value() == kPages * kPageSize);
}

TEST_CASE("filling goes on when NVMe has caught up, also if nobody reads") {
  constexpr uint32_t kFiles = 200;
  constexpr uint32_t kChunk = 64 << 10;
  StagingFixture f({std::vector<uint64_t>(kFiles, kChunk), 1 << 20, 0, 64 << 20, kChunk, false},
                   "seed=1 format=files epochs=2");
  f.store.set_slow(true);
  const auto at_rest = [&] {
    f.source.complete_all();
    const uint64_t before = f.source.fetches;
    f.settle();
    return f.source.pending() == 0 && f.source.fetches == before;
  };
  REQUIRE(f.settle_until([&] { return at_rest() && f.cache->writes_are_behind(); }));
  REQUIRE(f.source.fetches < kFiles);
  f.store.set_slow(false);
  // What comes just when the disk is behind may be left for its next use.
  CHECK(f.settle_until([&] {
    f.source.complete_all();
    return f.store.chunks() >= kFiles - 5;
  }));
}

TEST_CASE("a dataset that fits the budget waits until what fills it has been read") {
  constexpr uint64_t kPages = 200;
  StagingFixture f(2 * kPages, kPageSize, "name=one seed=1 format=files epochs=2", kPages * kPageSize, 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kPages; }));
  std::string names;
  for (uint64_t i = 0; i < kPages / 2; ++i)
    names += (i == 0 ? "\"f" : ",\"f") + std::to_string(10000 + i) + "\"";
  const auto other = f.add_plan("name=two format=list list='[" + names + "]' seed=2 epochs=2");
  f.settle();
  CHECK(f.staging->ahead("two") == 0);
  CHECK(f.metrics.staging_bytes.value() == kPages * kPageSize);
  for (uint64_t p = 0; p < kPages * 3 / 4; ++p) f.read_next(p);
  CHECK(f.settle_until([&] { return f.staging->ahead("two") >= kPages / 2; }));
  CHECK(f.metrics.staging_bytes.value() <= static_cast<int64_t>(kPages * kPageSize));
}

TEST_CASE("a sample that is left to the reader keeps no other plan waiting") {
  constexpr uint64_t kBudget = 512 << 10;
  std::vector<uint64_t> sizes(10, 400 << 10);
  sizes.resize(60, kPageSize);
  StagingFixture f({sizes, kBudget}, "name=large format=list list='[\"f10000\",\"f10001\"]' seed=1 epochs=2");
  std::string names;
  for (uint64_t i = 10; i < 60; ++i) names += (i == 10 ? "\"f" : ",\"f") + std::to_string(10000 + i) + "\"";
  REQUIRE(f.settle_until([&] { return f.staging->ahead("large") >= 1; }));
  f.add_plan("name=small format=list list='[" + names + "]' seed=2 epochs=2");
  // The first of the large ones was pushed before: it has to be read, or its plan to be idle for five
  // seconds.
  f.now += 6s;
  CHECK(f.settle_until([&] { return f.staging->ahead("small") >= 50; }));
  CHECK(f.metrics.staging_bytes.value() <= static_cast<int64_t>(kBudget));
}

TEST_CASE("a plan is finished whose reader passed the rest unseen, but for the end, when it is gone") {
  constexpr uint32_t kFiles = 1000;
  constexpr uint64_t kSize = 20000;
  constexpr uint64_t kBefore = 300;
  const bool goes_on = GENERATE(false, true);
  StagingFixture f({.sizes = std::vector<uint64_t>(kFiles, kSize),
                    .budget = 20 * round_to_pages(kSize),
                    .keep = kFiles * round_to_pages(kSize)},
                   "seed=1 format=files epochs=1");
  const Tracker& tracker = f.run->reader().tracker();
  REQUIRE(f.settle_until([&] { return f.staged() == kFiles; }));
  for (uint64_t p = 0; p < kBefore; ++p) f.read_next(p);
  f.settle();
  REQUIRE(tracker.state() == TrackerState::following);
  REQUIRE_FALSE(f.read_next(kFiles - 1));
  REQUIRE(tracker.status().out_of_order == 1);
  f.settle();
  CHECK(tracker.state() == TrackerState::following);
  for (uint64_t p = kBefore; goes_on && f.read_next(p); ++p) REQUIRE(p < kFiles);
  f.now += 10s;
  f.settle();
  CHECK(tracker.state() == (goes_on ? TrackerState::following : TrackerState::finished));
  CHECK((tracker.high_water() == kFiles) == !goes_on);
}
