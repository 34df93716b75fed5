#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "plan/sequence/sequence_positions.h"
#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

TEST_CASE("what the kernel took back is pushed again, once, before the reader comes") {
  constexpr uint32_t kFiles = 400;
  constexpr uint64_t kWindow = 100;
  // A quarter of the dataset fits, or all of it.
  const uint64_t budget = GENERATE(100ULL, 800ULL) * round_to_pages(20000);
  StagingFixture f(kFiles, 20000, "seed=1 format=files epochs=2", budget, 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= kWindow; }));
  const auto file_at = [&](uint64_t p) {
    return f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
  };
  std::set<uint64_t> whole;
  for (uint64_t p = 0; p < kWindow; ++p)
    if (f.pages.whole(file_at(p))) whole.insert(p);
  REQUIRE(whole.size() > kWindow * 3 / 4);  // the others are sentinels
  const auto lose = [&](uint64_t from, uint64_t to) {
    for (uint64_t p = from; p < to; ++p) f.pages.lose(file_at(p));
  };
  const auto repaired = [&] { return f.metrics.staging_repaired.value(); };

  const uint64_t first = *whole.lower_bound(20);
  for (uint64_t p = 0; p < first; ++p) CHECK(f.read_next(p) == whole.contains(p));
  CHECK(repaired() == 0);  // sentinels are read, and tell of nothing
  lose(first, 80);
  CHECK_FALSE(f.read_next(first));
  CHECK(f.settle_until([&] { return repaired() == 80 - first - 1; }));
  for (uint64_t p = first + 1; p < 40; ++p) CHECK(f.read_next(p) == whole.contains(p));

  f.now += 110ms;  // it does not look sooner
  const uint64_t second = *whole.lower_bound(40);
  for (uint64_t p = 40; p < second; ++p) CHECK(f.read_next(p) == whole.contains(p));
  const uint64_t before = repaired();
  const uint64_t fresh = *whole.lower_bound(85);  // after all others, so that they have been looked at
  lose(second, 80);
  f.pages.lose(file_at(fresh));
  CHECK_FALSE(f.read_next(second));
  CHECK(f.settle_until([&] { return f.pages.whole(file_at(fresh)); }));
  for (uint64_t p = second + 1; p < 80; ++p) CHECK_FALSE(f.read_next(p));
  for (uint64_t p = 80; p < kWindow; ++p) CHECK(f.read_next(p) == whole.contains(p));
  CHECK(repaired() - before <= 1);
}

TEST_CASE("what the kernel took back of other workers' batches is pushed again, too") {
  StagingFixture f(400, 20000, "seed=1 format=files epochs=1 batch=8 workers=4", 200 * round_to_pages(20000),
                   0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= 150; }));
  const auto file_at = [&](uint64_t p) {
    return f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
  };
  // The fourth worker begins before the second and the third.
  f.pages.lose(file_at(24));
  CHECK_FALSE(f.read_next(24));
  REQUIRE(f.run->reader().tracker().high_water() == 25);
  f.now += 110ms;  // it does not look sooner
  std::vector<FileId> lost;
  for (uint64_t p = 8; p < 24; ++p) {
    if (f.pages.whole(file_at(p))) lost.push_back(file_at(p));
  }
  REQUIRE(lost.size() > 8);
  for (const FileId file : lost) f.pages.lose(file);
  CHECK_FALSE(f.read_next(9));
  const auto there = [&] {
    return std::count_if(lost.begin(), lost.end(), [&](FileId file) { return f.pages.whole(file); });
  };
  CHECK(f.settle_until([&] { return there() + 1 >= static_cast<long>(lost.size()); }));
}

TEST_CASE("looking for what the kernel took back leaves the sentinels of an earlier epoch open") {
  constexpr uint32_t kFiles = 200;
  constexpr uint64_t kWindow = 180;
  constexpr uint64_t kRead = 100;
  StagingFixture f(kFiles, 20000, "seed=1 format=files epochs=2", kWindow * round_to_pages(20000), 0);
  const auto file_at = [&](uint64_t p) {
    return f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
  };
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= kWindow; }));
  for (uint64_t p = 0; p < kRead; ++p) f.read_next(p);
  // The window reaches into the second epoch.
  REQUIRE(f.settle_until([&] { return f.staged() > kFiles + kRead / 2; }));
  std::vector<FileId> open;
  for (uint64_t p = kRead + 20; p < kFiles; ++p) {
    if (!f.pages.whole(file_at(p))) open.push_back(file_at(p));
  }
  REQUIRE(open.size() > 1);
  std::set<FileId> read;
  for (uint64_t p = 0; p < kRead; ++p) read.insert(file_at(p));
  uint64_t last = f.staged() - 1;  // the look comes by all others on its way there
  while (!read.contains(file_at(last)) || !f.pages.whole(file_at(last))) --last;
  REQUIRE(last >= kFiles + kRead / 4);
  uint64_t first = f.run->reader().tracker().high_water();
  while (!f.pages.whole(file_at(first))) ++first;
  f.pages.lose(file_at(first));
  f.pages.lose(file_at(last));
  CHECK_FALSE(f.read_next(first));
  CHECK(f.settle_until([&] { return f.pages.whole(file_at(last)); }));
  CHECK(std::none_of(open.begin(), open.end(), [&](FileId file) { return f.pages.whole(file); }));
}

TEST_CASE("where the kernel does not tell what it took back, readers are left to read it") {
  StagingFixture f(400, 20000, "seed=1 format=files epochs=1", 100 * round_to_pages(20000), 0);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("default") >= 100; }));
  f.pages.tell_nothing();
  std::set<uint64_t> whole;
  for (uint64_t p = 0; p < 100; ++p) {
    const FileId file = f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
    if (f.pages.whole(file)) whole.insert(p);
    f.pages.lose(file);
  }
  const uint64_t first = *whole.begin();
  for (uint64_t p = 0; p <= first; ++p) CHECK_FALSE(f.read_next(p));
  CHECK(f.settle_until([&] { return f.pages.looks() > 0; }));
  f.settle();
  CHECK(f.pages.looks() == 1);  // it does not ask for each sample in vain
  for (uint64_t p = first + 1; p < 100; ++p) CHECK_FALSE(f.read_next(p));
  CHECK(f.metrics.staging_repaired.value() == 0);
  CHECK(f.settle_until([&] { return f.staging->ahead("default") >= 100; }));
}

TEST_CASE("a plan that ends lets go of what it was fetching anew") {
  constexpr uint64_t kSize = 2 << 20;  // eight fill the transit memory
  constexpr uint32_t kFiles = 24;
  StagingFixture f({std::vector<uint64_t>(kFiles, kSize), 2 * kFiles * kSize, 0, 0, 4 << 20, false},
                   "name=one seed=1 format=files epochs=1");
  const auto fetched = [&](const std::string& plan, uint64_t count) {
    return f.settle_until([&] {
      f.source.complete_all();
      return f.staging->ahead(plan) >= count;
    });
  };
  REQUIRE(fetched("one", kFiles));
  const auto file_at = [&](uint64_t p) {
    return f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
  };
  uint64_t first = 0;
  while (!f.pages.whole(file_at(first))) ++first;
  for (uint64_t p = first; p < kFiles; ++p) f.pages.lose(file_at(p));
  for (uint64_t p = 0; p <= first; ++p) f.read_next(p);
  REQUIRE(f.settle_until([&] { return f.source.pending() >= 4; }));
  for (uint64_t p = first + 1; p < kFiles; ++p) f.read_next(p);
  REQUIRE(f.run->reader().tracker().state() == TrackerState::finished);
  f.source.complete_all();
  f.add_plan("name=two seed=2 format=files epochs=1");
  CHECK(fetched("two", kFiles / 2));
}

TEST_CASE("what is dropped behind a reader that goes on meanwhile is not taken for lost") {
  constexpr uint64_t kSize = 20000;
  constexpr uint32_t kFiles = 100;
  constexpr uint64_t kSeen = 2 * kFiles - 15;
  StagingFixture f(kFiles, kSize, "sampler=torch.sequential format=files epochs=3",
                   20 * round_to_pages(kSize), 1 << 24);
  Tracker& tracker = f.run->reader().tracker();
  const Timeline timeline = f.run->reader().timeline();
  REQUIRE(timeline.end() == 2 * kFiles);
  const auto read = [&](uint32_t sample) {
    f.now += 100us;
    tracker.observe(std::vector{sample}, Access::read, f.now);
  };
  for (uint64_t p = 0; p < kSeen; ++p) {
    f.settle();
    read(timeline.sample_at(p));
  }
  f.settle();
  REQUIRE(f.staged() == timeline.end());

  // Staging does not know the next epoch yet, so in its turn it is told that the reader is further than where
  // it can look.
  const auto next = f.run->sequence_of(f.run->resolved(), Epoch(2), NodeId(0));
  REQUIRE(next.ok());
  tracker.add_epoch(std::make_shared<const SequencePositions>(std::make_shared<const EpochSequence>(*next)),
                    timeline.end());
  for (uint64_t p = kSeen; p < timeline.end(); ++p) read(timeline.sample_at(p));
  read(next->sample_at(0));
  REQUIRE(tracker.high_water() > timeline.end());
  const uint64_t done = tracker.position();
  REQUIRE(done > kSeen);
  f.now += 1s;  // it looks for what was lost again
  f.settle();
  for (uint64_t p = kSeen; p < done; ++p) {
    CAPTURE(p);
    const FileId file = f.run->index().range(timeline.sample_at(p), 0).file;
    CHECK(f.pages.missing(file, 0, kSize).size() == round_to_pages(kSize) / kPageSize);
  }
}
