// Staging over samples that are records of one file.
#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint64_t kHeaderBytes = 77;

struct RecordsFixture : StagingFixture {
  RecordsFixture(uint64_t count, uint64_t size, const std::string& plan, uint64_t budget, uint64_t ram = 0,
                 uint32_t chunk_size = 4 << 20, bool at_once = true, bool in_file_order = true)
      : StagingFixture(
            {.sizes = {kHeaderBytes + count * size},
             .budget = budget,
             .ram = ram,
             .chunk_size = chunk_size,
             .immediate = at_once,
             .fill_in_file_order = in_file_order},
            fmt::format("format=raw file=f10000 record={} header={} ", size, kHeaderBytes) + plan) {}

  ByteRange record_at(uint64_t position) {
    return run->index().range(run->reader().timeline().sample_at(position), 0);
  }
  /// The reader takes the record at `position`, in blocks of `block` bytes, a tenth of a millisecond after
  /// the one before. A READ of a page for each that is not there; returns how many. `unseen`: those that were
  /// of no sentinel.
  uint64_t read(uint64_t position, uint64_t block = 1) {
    now += std::chrono::microseconds(100);
    const ByteRange record = record_at(position);
    const uint64_t end = std::min((record.length + block - 1) / block * block + record.offset, bytes());
    const auto missing = pages.missing(record.file, record.offset, end - record.offset);
    for (const uint64_t page : missing) {
      const auto hit = staging->sentinels().take(record.file, page, kPageSize);
      if (hit) {
        // Near enough to know the reader's place.
        CHECK(hit->of.position - position + 64 <= 128 + kPageSize / record.length);
        run->reader().tracker().observe(std::vector{hit->of.sample}, Access::read, now);
      } else {
        ++unseen;
      }
      pages.fill(record.file, page, std::min(kPageSize, bytes() - page));
    }
    if (missing.empty()) return 0;
    REQUIRE(run->prepare().ok());
    staging->wake();
    return missing.size();
  }
  uint64_t bytes() const { return catalog->stamp(*catalog->find("f10000")).size; }
  /// A plan that has finished at its last sentinel stages nothing more.
  bool ready(uint64_t position, uint64_t ahead, uint64_t end) {
    return settle_until([&] {
      return staged() >= std::min(position + ahead, end) ||
             run->reader().tracker().status().state == TrackerState::finished;
    });
  }

  uint64_t unseen = 0;
};

}  // namespace

TEST_CASE("records are followed to the end of the plan, whatever their size, order and reader") {
  const uint64_t size = GENERATE(4096ULL, 5001ULL, 30000ULL);
  const uint64_t block = GENERATE(1ULL, 4096ULL);
  const bool shuffle = GENERATE(true, false);
  CAPTURE(size, block, shuffle);
  constexpr uint64_t kCount = 2000;
  constexpr uint64_t kWindow = 100;
  const uint64_t budget = kWindow * (round_to_pages(size) + 2 * kPageSize);
  // Small enough to be kept as a whole otherwise: that is another test.
  const uint64_t count = std::max(kCount, 4 * budget / size);
  RecordsFixture f(count, size, fmt::format("shuffle={} seed=3 epochs=2", shuffle), budget);
  uint64_t requests = 0;
  uint64_t most_cached = 0;
  for (uint64_t p = 0; p < 2 * count; ++p) {
    REQUIRE(f.ready(p, 8, 2 * count));
    requests += f.read(p, block);
    most_cached = std::max(most_cached, f.pages.cached_bytes());
  }
  f.settle();
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.state == TrackerState::finished);
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
  // A READ of no sentinel is one that staging ought to have spared the reader.
  CHECK(f.unseen <= 2 * count / 500);
  CHECK(requests <= 2 * count / 5);
  CHECK(most_cached <= 2 * budget);
}

TEST_CASE("records of which many share a page are followed by a small window") {
  const uint64_t size = GENERATE(128ULL, 700ULL, 1300ULL);
  const uint64_t block = GENERATE(1ULL, 4096ULL);
  const bool shuffle = GENERATE(true, false);
  CAPTURE(size, block, shuffle);
  constexpr uint64_t kBudget = 1 << 20;
  const uint64_t count = 2 * kBudget / size;
  RecordsFixture f(count, size, fmt::format("shuffle={} seed=3 epochs=2", shuffle), kBudget);
  uint64_t requests = 0;
  for (uint64_t p = 0; p < 2 * count; ++p) {
    REQUIRE(f.ready(p, 8, 2 * count));
    requests += f.read(p, block);
    if (p % 100 == 0) REQUIRE(f.pages.cached_bytes() <= 2 * kBudget);
  }
  f.settle();
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.state == TrackerState::finished);
  CHECK(status.suspensions == 0);
  CHECK(status.realignments == 0);
  CHECK(f.unseen <= 2 * count / 500);
  CHECK(requests <= 2 * count / 10);
}

// If it was the last one, nothing tells of the end.
TEST_CASE("no sentinel is asked for so early that the tracker takes the READ for a stray") {
  constexpr uint32_t kCount = 600;
  constexpr uint64_t kSize = 3000;
  constexpr uint64_t kWindow = 100;  // records: every twelfth is a sentinel
  constexpr uint64_t kEarly = 50;
  // Two pages can tell of 513, which is read last. 512 has a part of the first, and its reader goes on into
  // the second, 50 positions sooner. All other neighbours are read at least 175 positions apart.
  std::vector<uint32_t> order{514};
  for (uint32_t i = 0; i < kCount; ++i) {
    if (order.size() == kCount - 1 - kEarly) order.push_back(512);
    const uint32_t record = i * 419 % kCount;
    if (record < 512 || record > 514) order.push_back(record);
  }
  order.push_back(513);
  REQUIRE(order.size() == kCount);
  RecordsFixture f(kCount, kSize, fmt::format("sampler=list epochs=1 list=[{}]", fmt::join(order, ",")),
                   kWindow * 2 * kPageSize);
  const ByteRange last = f.record_at(kCount - 1);
  const ByteRange before = f.record_at(kCount - 1 - kEarly);
  REQUIRE(before.offset + kSize == last.offset);
  REQUIRE(before.offset + kBufferedBlock > round_to_pages(last.offset));
  for (uint64_t p = 0; p < kCount; ++p) {
    f.settle();
    f.read(p, kBufferedBlock);
  }
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.state == TrackerState::finished);
  CHECK(status.out_of_order == 0);
  CHECK(status.passed >= kCount - 12);
}

TEST_CASE("a record that comes again soon stays though its first use is over before its second is staged") {
  constexpr uint64_t kCount = 40;
  constexpr uint64_t kBytes = 30000;
  constexpr uint64_t kWindow = 30;  // records
  RecordsFixture f(kCount, kBytes, "seed=3 epochs=6", kWindow * (round_to_pages(kBytes) + 2 * kPageSize), 0,
                   4 << 20, false);
  for (uint64_t p = 0; p < 5 * kCount; ++p) {
    // Staging is barely ahead of the reader, and what it has asked for far.
    REQUIRE(f.settle_until([&] {
      if (f.staged() > p) return true;
      f.source.complete_one();
      return false;
    }));
    const ByteRange record = f.record_at(p);
    CHECK(f.pages.missing(record.file, record.offset, record.length).size() <= 1);  // of a sentinel
    f.read(p);
    f.settle();
  }
}

TEST_CASE("a page that was pushed with the first chunk of a record is not dropped with its neighbour") {
  // 3 and 4 share the pages from 36864 to 45056, with what a reader of 3 may read on; 4 has two chunks.
  StagingFixture f({.sizes = {40 * 10000}, .budget = 100 << 10, .chunk_size = 16 << 10, .immediate = false},
                   "format=raw file=f10000 record=10000 sampler=list epochs=1 "
                   "list=[3,10,20,4,30,35,15,25,38,12,22,32]");
  const FileId file = *f.catalog->find("f10000");
  const auto shared = [&] { return f.pages.missing(file, 36864, 2 * kPageSize); };
  const auto first_chunk_is_pushed = [&] {
    const PageRange own{file, 45056, 49152};  // unless it is a sentinel
    return f.pages.missing(file, own.begin, 1).empty() || f.staging->sentinels().without_open(own).empty();
  };
  const auto read = [&](uint64_t position) {
    f.now += std::chrono::microseconds(100);
    const uint32_t sample = f.run->reader().timeline().sample_at(position);
    f.run->reader().tracker().observe(std::vector{sample}, Access::read, f.now);
    f.staging->wake();
    f.settle();
  };
  f.settle();
  while (!first_chunk_is_pushed()) {
    REQUIRE(f.source.complete_one());
    f.settle();
  }
  REQUIRE(f.staged() == 3);
  REQUIRE(shared().empty());
  const uint64_t drops = f.pages.drops();
  for (const uint64_t position : {0, 1, 2}) read(position);
  CHECK(f.pages.drops() > drops);  // of 3
  CHECK(shared().empty());
  while (f.source.complete_all()) f.settle();
  for (const uint64_t position : {3, 4, 5}) read(position);
  CHECK(shared().size() == 2);  // of 4, which is over
}

TEST_CASE("what the readers of records need next is asked of the source together, and files one by one") {
  RecordsFixture f(400, 20000, "sampler=strided block=4 batch=4 world=2 ranks_per_node=2 epochs=1", 1 << 20,
                   0, 64 << 10, false);
  REQUIRE(f.run->readers().size() == 2);
  f.settle();
  const uint64_t fetches = f.source.fetches;
  CHECK(fetches > 20);
  REQUIRE(!f.source.gatherings().empty());
  CHECK(f.source.gatherings().front() == fetches - 1);  // all but the header
  while (f.source.complete_all()) f.settle();
  for (const size_t rank : {0, 1}) CHECK(f.staging->ahead("default", rank) > 0);

  StagingFixture files(20, 20000, "seed=1 format=files epochs=1", 1 << 20, 0);
  files.settle();
  CHECK(files.source.fetches > 0);
  CHECK(files.source.gatherings().empty());
}

TEST_CASE("tiers are filled with records in the order of their file") {
  constexpr uint64_t kCount = 4000;
  const bool in_file_order = GENERATE(true, false);  // false: benchmarks do without
  RecordsFixture f(kCount, 5001, "seed=3 epochs=2", 1 << 20, 64 << 20, 64 << 10, true, in_file_order);
  f.settle();
  const std::vector<uint64_t> fills = f.source.fills();
  CHECK(fills.size() > 100);
  CHECK(std::is_sorted(fills.begin(), fills.end()) == in_file_order);
  CHECK(f.source.bytes == f.bytes());  // each once
}

TEST_CASE("records of a file that fits the budget are pushed once and followed over epochs") {
  const uint64_t size = GENERATE(700ULL, 5001ULL);
  const bool shuffle = GENERATE(true, false);
  CAPTURE(size, shuffle);
  constexpr uint64_t kCount = 1000;
  RecordsFixture f(kCount, size, fmt::format("shuffle={} seed=3 epochs=4", shuffle), 16 << 20, 16 << 20);
  for (uint64_t p = 0; p < 4 * kCount; ++p) {
    f.settle();
    f.read(p);
  }
  f.settle();
  const TrackerStatus status = f.run->reader().tracker().status();
  CHECK(status.suspensions == 0);
  CHECK(status.position.epoch == Epoch(3));
  CHECK(f.unseen == 0);
  CHECK(f.source.fetches == 1 + kCount * size / (4 << 20));
}

TEST_CASE("records in the order of their file are pushed end to end") {
  const uint64_t size = GENERATE(1300ULL, 5001ULL);
  CAPTURE(size);
  const uint64_t count = 4'000'000 / size;
  RecordsFixture f(count, size, "shuffle=false epochs=1", 1 << 20, 16 << 20);
  for (uint64_t p = 0; p < count; ++p) {
    REQUIRE(f.ready(p, 8, count));
    f.read(p);
  }
  f.settle();
  const uint64_t pushed = f.metrics.staging_pushed_bytes.value();
  CHECK(pushed >= f.bytes() * 9 / 10);
  CHECK(pushed <= f.bytes() * 11 / 10);
}

TEST_CASE("a record whose fetch failed leaves the page that it shares to the next one") {
  constexpr uint64_t kSize = 6144;  // a page and a half
  StagingFixture f({.sizes = {100 * kSize}, .budget = 5 * kPageSize, .immediate = false},
                   fmt::format("format=raw file=f10000 record={} shuffle=false epochs=1", kSize));
  f.pages.tell_nothing();  // or what failed would be fetched once more when the reader moves
  f.settle();
  REQUIRE(f.source.pending() == 3);  // with what a reader may read on: of 2, 2 and 1 pages
  REQUIRE(f.source.complete_at(2, EIO));
  f.source.complete_all();
  f.settle();
  REQUIRE(f.staged() == 3);
  for (const uint32_t sample : {0U, 1U}) {
    f.now += std::chrono::microseconds(100);
    f.run->reader().tracker().observe(std::vector{sample}, Access::read, f.now);
  }
  REQUIRE(f.run->reader().tracker().high_water() == 2);
  const uint64_t before = f.source.bytes;
  f.staging->wake();
  f.settle();
  // The next one with all its three pages, and the one after it without the page that it shares with that.
  CHECK(f.source.bytes == before + 4 * kPageSize);
}

TEST_CASE("what every reader of records needs is pushed first and stays") {
  RecordsFixture f(2000, 5001, "seed=3 epochs=2", 1 << 20);
  f.settle();
  const FileId file = *f.catalog->find("f10000");
  CHECK(f.pages.missing(file, 0, kHeaderBytes).empty());
  for (uint64_t p = 0; p < 4000; ++p) {
    REQUIRE(f.ready(p, 8, 4000));
    f.read(p);
    if (p % 100 == 0) CHECK(f.pages.missing(file, 0, kHeaderBytes).empty());
  }
  CHECK(f.pages.missing(file, 0, kHeaderBytes).empty());
}

TEST_CASE("what every reader needs and the kernel took back is pushed again when a READ tells of it") {
  constexpr uint64_t kFiles = 40;
  constexpr uint64_t kRecords = 50;
  constexpr uint64_t kSize = 5001;
  StagingFixture f(
      {.sizes = std::vector<uint64_t>(kFiles, kHeaderBytes + kRecords * kSize), .budget = 1 << 20},
      fmt::format("format=raw file=* record={} header={} seed=3 epochs=2", kSize, kHeaderBytes));
  f.settle();
  std::vector<FileId> files;
  for (uint64_t i = 0; i < kFiles; ++i) files.push_back(*f.catalog->find(fmt::format("f{}", 10000 + i)));
  const auto lose = [&] {
    for (const FileId file : files) f.pages.drop(file, 0, kPageSize);
  };
  const auto there = [&] {
    return static_cast<uint64_t>(std::count_if(
        files.begin(), files.end(), [&](FileId file) { return f.pages.missing(file, 0, 1).empty(); }));
  };
  const auto read = [&](uint64_t offset) {
    f.staging->note_read("default", files[3], offset, kPageSize);
    f.settle();
  };
  REQUIRE(there() == kFiles);
  const uint64_t looks = f.pages.looks();
  lose();
  f.settle();
  read(10 * kPageSize);  // records
  CHECK(f.pages.looks() == looks);
  CHECK(there() == 0);
  read(0);
  CHECK(there() == kFiles);  // one tells of all

  f.pages.drop(files[7], 0, kPageSize);
  read(0);
  CHECK(there() == kFiles - 1);  // it does not look so soon again
  f.now += std::chrono::milliseconds(110);
  f.staging->wake();
  f.settle();
  CHECK(there() == kFiles);
  f.now += std::chrono::milliseconds(110);
  f.pages.drop(files[7], 0, kPageSize);
  read(0);
  CHECK(there() == kFiles - 1);  // and ever more seldom
}

TEST_CASE("records that no tier keeps cost the source their own pages") {
  constexpr uint64_t kCount = 2000;
  constexpr uint64_t kSize = 20000;
  RecordsFixture f(kCount, kSize, "seed=3 epochs=2", 1 << 20);
  for (uint64_t p = 0; p < 2 * kCount; ++p) {
    REQUIRE(f.ready(p, 8, 2 * kCount));
    f.read(p);
  }
  const double each = static_cast<double>(f.metrics.staging_pushed_bytes.value()) / (2 * kCount);
  CHECK(each <= kSize + 2 * kPageSize);
  CHECK(f.source.bytes <= 2 * kCount * (kSize + 2 * kPageSize));
}

TEST_CASE("records are expected while the plan is followed, and of one that only looks for its samples") {
  constexpr uint32_t kCount = 2000;
  RecordsFixture f(kCount, 5001, "seed=3 epochs=2", 1 << 20);
  const auto look_at = [&](uint32_t sample, Access kind) {
    f.now += std::chrono::microseconds(100);
    f.run->reader().tracker().observe(std::vector{sample}, kind, f.now);
  };
  f.settle();
  CHECK(f.pages.records_expected() == RecordPlans::registered);  // before anybody comes
  for (uint32_t sample = 0; sample < kCount; ++sample) look_at(sample, Access::read);
  REQUIRE(f.run->reader().tracker().state() == TrackerState::suspended);
  f.staging->wake();
  f.settle();
  CHECK(f.pages.records_expected() == RecordPlans::registered);
  look_at(5, Access::read_through);
  f.staging->wake();
  f.settle();
  CHECK(f.pages.records_expected() == RecordPlans::none);
  for (uint64_t p = 0; p < 400; ++p) look_at(f.run->reader().timeline().sample_at(p), Access::read);
  REQUIRE(f.run->reader().tracker().state() == TrackerState::following);
  f.staging->wake();
  f.settle();
  CHECK(f.pages.records_expected() == RecordPlans::registered);
}

TEST_CASE("a plan of records that was found is told of as one that nobody has registered") {
  RecordsFixture f(2000, 5001, "name=auto seed=3 epochs=2", 1 << 20);
  CHECK(f.pages.records_expected() == RecordPlans::found);
  f.settle();
  CHECK(f.pages.records_expected() == RecordPlans::found);
  f.add_plan(fmt::format("format=raw file=f10000 record=5001 header={} seed=3", kHeaderBytes));
  f.settle();
  CHECK(f.pages.records_expected() == RecordPlans::registered);
}
