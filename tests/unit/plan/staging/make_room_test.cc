// What readers who have stopped give up of their windows for others.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace making_room {

constexpr uint64_t kSize = 20000;
constexpr uint64_t kPages = round_to_pages(kSize);
constexpr uint32_t kFiles = 400;  // of each of two plans
constexpr uint64_t kWindow = 80;  // samples
constexpr uint64_t kSmall = kWindow / 8;
constexpr uint64_t kSure = 8;  // samples read in order, each of them seen: the reader is followed for certain

/// Keys of a plan of so many files, from a number on.
std::string files(uint32_t first, uint32_t count) {
  std::string names;
  for (uint32_t i = first; i < first + count; ++i)
    names += fmt::format("{}\"f{}\"", i == first ? "" : ",", 10000 + i);
  return fmt::format("format=list list='[{}]' epochs=2 ", names);
}

/// Reads so many samples of a plan that has no room.
void begin_reading(StagingFixture& f, PlanRun& plan, uint64_t samples = kSure) {
  for (uint64_t p = 0; p < samples; ++p) REQUIRE_FALSE(f.read_next(plan, p));
  f.settle();
}

struct TwoPlans : StagingFixture {
  /// `more`: keys of the first plan.
  explicit TwoPlans(uint64_t window = kWindow, bool at_once = true, const std::string& more = "",
                    uint64_t size = kSize)
      : StagingFixture({.sizes = std::vector<uint64_t>(2 * kFiles, size),
                        .budget = window * round_to_pages(size),
                        .immediate = at_once},
                       "name=one seed=1 " + more + files(0, kFiles)) {}

  std::shared_ptr<PlanRun> add_second(uint32_t count = kFiles) {
    auto added = add_plan("name=two seed=2 " + files(kFiles, count));
    settle();
    return added;
  }
  /// The reader of the first plan, who does not read what was not pushed.
  void read(uint64_t from, uint64_t to) {
    for (uint64_t p = from; p < to; ++p) {
      REQUIRE(settle_until([&] { return staged() > p; }));
      read_next(p);
    }
    settle();
  }
  /// Samples of [from, to) that have pages in the page cache.
  uint64_t cached(const PlanRun& of, uint64_t from, uint64_t to) {
    uint64_t samples = 0;
    for (uint64_t p = from; p < to; ++p) {
      const FileId file = of.index().range(of.reader().timeline().sample_at(p), 0).file;
      if (pages.missing(file, 0, kSize).size() < kPages / kPageSize) ++samples;
    }
    return samples;
  }
  void check_followed() const {
    const TrackerStatus status = run->reader().tracker().status();
    CHECK(status.state == TrackerState::following);
    CHECK(status.suspensions == 0);
    CHECK(status.realignments == 0);
    CHECK(status.out_of_order == 0);
  }
};

TEST_CASE("the window of a reader who has stopped makes room for one who goes on, and takes it up again") {
  TwoPlans f;
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kWindow; }));
  f.read(0, 20);
  const uint64_t seen = f.run->reader().tracker().high_water();
  REQUIRE(f.staging->ahead("one") == kWindow);
  f.now += 6s;
  const auto two = f.add_second();
  CHECK(f.staging->ahead("one") == kWindow);  // nobody has begun to read the other one

  begin_reading(f, *two);
  CHECK(f.staging->ahead("one") == kSmall);
  CHECK(f.staging->ahead("two") == kWindow - kSmall);
  CHECK(f.cached(*f.run, seen + kSmall, seen + kWindow) == 0);
  CHECK(f.metrics.staging_bytes.value() <= static_cast<int64_t>(kWindow * kPages));
  CHECK(f.pages.cached_bytes() <= (kWindow + 20) * kPages);  // with what was read

  f.now += 6s;
  f.read(20, 200);
  CHECK(f.staging->ahead("one") == kWindow - kSmall);
  CHECK(f.staging->ahead("two") == kSmall);
  CHECK(f.cached(*two, kSure + kSmall, kSure + kWindow) == 0);
  CHECK(f.metrics.staging_bytes.value() <= static_cast<int64_t>(kWindow * kPages));
  f.check_followed();
}

TEST_CASE("a few accesses in the order of a plan take nothing from a reader who has stopped") {
  TwoPlans f;
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kWindow; }));
  f.now += 6s;
  const auto two = f.add_second();
  begin_reading(f, *two, kSure - 1);
  CHECK(f.staging->ahead("one") == kWindow);
  CHECK_FALSE(f.read_next(*two, kSure - 1));
  f.settle();
  CHECK(f.staging->ahead("one") == kSmall);
}

TEST_CASE("readers who go on take nothing from each other, also if one is seen every ten seconds") {
  const bool slow = GENERATE(false, true);
  CAPTURE(slow);
  TwoPlans f;
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kWindow; }));
  for (uint64_t p = 0; p < 40; ++p) {
    if (slow) f.now += 1s;  // one sample in ten is a sentinel
    f.read(p, p + 1);
  }
  const auto two = f.add_second();
  begin_reading(f, *two);
  CHECK(f.staging->ahead("one") == kWindow);
  CHECK(f.staging->ahead("two") <= 1);  // one that is left to its reader

  f.now += 40s;  // four times as long as from one sentinel to the next
  f.read_next(*two, kSure);
  f.settle();
  CHECK(f.staging->ahead("one") == kSmall);
  CHECK(f.staging->ahead("two") == kWindow - kSmall);
}

TEST_CASE("a reader who seems slow has stopped after a minute") {
  TwoPlans f;
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kWindow; }));
  f.read(0, 1);
  f.now += 10min;
  f.read(1, 40);
  const auto two = f.add_second();
  f.now += 59s;
  begin_reading(f, *two);
  CHECK(f.staging->ahead("one") == kWindow);
  f.now += 2s;
  f.read_next(*two, kSure);
  f.settle();
  CHECK(f.staging->ahead("one") == kSmall);
}

TEST_CASE("readers of one plan take nothing from each other, whoever is seen first after a pause") {
  TwoPlans f(kWindow, true, "world=2 ranks_per_node=2 ");
  const auto ahead = [&](size_t rank) { return f.staging->ahead("one", rank); };
  REQUIRE(f.settle_until([&] { return ahead(0) == kWindow / 2 && ahead(1) == kWindow / 2; }));
  uint64_t next = 0;  // of the first rank
  for (; next < kFiles / 4 && !f.run->reader().tracker().is_followed(); ++next) f.read(next, next + 1);
  REQUIRE(f.run->reader().tracker().is_followed());
  f.now += 6s;
  while (f.read_next(next)) ++next;  // up to a sentinel
  f.settle();
  CHECK(ahead(0) == kWindow / 2);
  CHECK(ahead(1) == kWindow / 2);

  const auto two = f.add_second();
  begin_reading(f, *two);
  CHECK(ahead(1) == kWindow / 2);  // the first rank goes on
  f.now += 6s;
  f.read_next(*two, kSure);
  f.settle();
  CHECK(ahead(0) == kSmall / 2);
  CHECK(ahead(1) == kSmall / 2);
  CHECK(f.staging->ahead("two") == kWindow - kSmall);
}

TEST_CASE("a plan that is to stay takes as much from a reader who has stopped as it needs") {
  TwoPlans f;
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kWindow; }));
  f.now += 6s;
  f.add_second(20);
  CHECK(f.staging->ahead("two") >= 20);
  CHECK(f.staging->ahead("one") == kWindow - 20);
  CHECK(f.pages.order().size() == kWindow + 20);  // nothing was pushed twice
  CHECK(f.metrics.staging_bytes.value() == static_cast<int64_t>(kWindow * kPages));
}

TEST_CASE("a reader who went on unseen, past what was given up, is followed from there") {
  constexpr uint64_t kLong = 240;  // one sentinel in 30
  constexpr uint64_t kLeft = 5;
  TwoPlans f(kLong);
  REQUIRE(f.settle_until([&] { return f.staging->ahead("one") == kLong; }));
  REQUIRE_FALSE(f.read_next(0));
  f.settle();
  for (uint64_t p = 1; p < 28; ++p) REQUIRE(f.read_next(p));
  f.now += 6s;
  f.add_second(kLong - kLeft);
  REQUIRE(f.staging->ahead("one") == kLeft);
  const size_t pushed = f.pages.order().size();
  REQUIRE_FALSE(f.read_next(28));
  CHECK(f.run->reader().tracker().high_water() == 29);
  f.settle();
  CHECK(f.pages.order().size() == pushed + kLeft);  // nothing that was read unseen
  f.read(29, 100);
  f.check_followed();
}

TEST_CASE("what the kernel took back of what a window keeps is still pushed again") {
  constexpr uint64_t kLost = 4;
  // So large that the memory of what was pushed is in use again when it is lost.
  TwoPlans f(kWindow, false, "", 2 << 20);
  const auto all_ahead = [&] {
    f.source.complete_all();
    return f.staging->ahead("one") == kWindow;
  };
  REQUIRE(f.settle_until(all_ahead));
  REQUIRE_FALSE(f.read_next(0));
  REQUIRE(f.settle_until(all_ahead));
  const auto file_at = [&](uint64_t p) {
    return f.run->index().range(f.run->reader().timeline().sample_at(p), 0).file;
  };
  for (uint64_t p = 1; p < 2 + kLost; ++p) f.pages.lose(file_at(p));
  REQUIRE_FALSE(f.read_next(1));
  f.settle();
  REQUIRE(f.source.pending() >= kLost);
  f.now += 6s;
  f.add_second(20);
  REQUIRE(f.staging->ahead("one") == kWindow - 20);
  CHECK(f.settle_until([&] {
    f.source.complete_all();
    uint64_t whole = 0;
    for (uint64_t p = 2; p < 2 + kLost; ++p) whole += f.pages.whole(file_at(p)) ? 1 : 0;
    return whole == kLost;
  }));
}

TEST_CASE("what is on its way to a reader who has stopped is not pushed when it comes") {
  TwoPlans f(kWindow, false);
  f.settle();
  REQUIRE(f.source.pending() > kSmall);
  f.now += 6s;
  const auto two = f.add_second();
  begin_reading(f, *two);
  CHECK(f.settle_until([&] {
    f.source.complete_all();
    return f.staging->ahead("one") == kSmall && f.staging->ahead("two") == kWindow - kSmall;
  }));
  CHECK(f.pages.order().size() == kWindow);
  CHECK(f.pages.cached_bytes() <= (kWindow + kSure) * kPages);  // with what was read
}

TEST_CASE("records make room as files do") {
  constexpr uint64_t kRecords = 1500;
  constexpr uint64_t kRecord = 5001;  // neighbours share a page
  std::vector<uint64_t> sizes(1 + kFiles, kSize);
  sizes.front() = kRecords * kRecord;
  StagingFixture f({.sizes = sizes, .budget = kWindow * kPages},
                   fmt::format("name=one format=raw file=f10000 record={} seed=3 epochs=2", kRecord));
  f.settle();
  REQUIRE(f.staging->ahead("one") > kWindow);
  f.now += 6s;
  const auto two = f.add_plan("name=two seed=2 " + files(1, kFiles));
  f.settle();
  begin_reading(f, *two);
  CHECK(f.staging->ahead("two") == kWindow - kSmall);
  CHECK(f.staging->ahead("one") > kSmall);
  CHECK(f.pages.cached_bytes() <= (kWindow + kSure) * kPages);  // with what was read

  f.now += 6s;
  for (uint64_t p = 0; p < 300; ++p) {
    f.settle();
    f.now += 100us;
    const uint32_t sample = f.run->reader().timeline().sample_at(p);
    const ByteRange record = f.run->index().range(sample, 0);
    for (const uint64_t page : f.pages.missing(record.file, record.offset, record.length)) {
      const auto hit = f.staging->sentinels().take(record.file, page, kPageSize);
      f.run->reader().tracker().observe(std::vector{hit ? hit->of.sample : sample}, Access::read, f.now);
      f.pages.fill(record.file, page, std::min(kPageSize, kRecords * kRecord - page));
      REQUIRE(f.run->prepare().ok());
      f.staging->wake();
    }
  }
  f.settle();
  CHECK(f.staging->ahead("two") == kSmall);
  CHECK(f.staging->ahead("one") > kWindow);
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
}

}  // namespace making_room
