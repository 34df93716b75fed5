#include <atomic>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cache/catalog/scan.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/io/memory.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/fake_store.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kRangeChunk = 256 << 10;
constexpr uint64_t kRangeRecord = 16 << 10;
constexpr Priority kRangePrefetch{Priority::Kind::prefetch, 77};

/// A cache over one file of so many chunks.
struct RangeFixture {
  /// `answers`: acquire() has the source answer.
  explicit RangeFixture(uint32_t chunks, uint64_t ram, bool answers = true, FakeStore* nvme = nullptr,
                        uint32_t largest_chunk = kRangeChunk)
      : answers_(answers), store(nvme) {
    tree.write("others", 3 * kRangeChunk);
    tree.write("records", uint64_t{chunks} * kRangeChunk);
    ScanOptions options;
    options.chunk_size = largest_chunk;
    options.record_chunks = {{"records", kRangeChunk}};
    catalog = *scan_catalog(tree.path(), options, log.logger());
    file = *catalog->find("records");
    mount(ram);
  }
  ~RangeFixture() { CHECK(cache->stop(1min)); }

  void mount(uint64_t ram) {
    std::vector<NvmeStore*> stores;
    if (store != nullptr) stores.push_back(store);
    cache = std::move(*ChunkCache::create({*catalog, source, stores, policy, metrics, log.logger()}, ram));
  }

  /// The first chunks are in RAM, which has no more room, and have copies on NVMe.
  void fill_ram(uint32_t chunks) {
    for (uint32_t i = 0; i < chunks; ++i) acquire(uint64_t{i} * kRangeChunk, kRangeChunk);
    source.complete_all();
    copy_all();
  }
  void copy_all() {
    while (cache->ram_backup().copy_next() == RamBackup::Outcome::copied) store->settle();
  }
  /// What has been asked for comes, and is written.
  void complete_all() {
    source.complete_all();
    store->settle();
  }
  Tier tier(uint32_t i) const { return cache->tier_of(chunk(i)); }

  ChunkId chunk(uint32_t i) const { return ChunkId(catalog->chunks(file).first.value + i); }

  /// Acquires the range, checks each of its bytes, and counts the answer.
  void acquire(uint64_t offset, uint64_t length, Priority priority = kRangePrefetch) {
    cache->acquire_range(file, offset, length, priority, [=, this](const Result<AcquiredChunk>& got) {
      ++answered;
      if (!got) return void(error = got.error().code);
      origin = got->origin;
      start = got->start;
      const uint64_t within = offset % kRangeChunk - got->start;
      REQUIRE(within + length <= got->data->length);
      const std::string bytes = joined(got->data->block.slices(within, length));
      bool equal = true;
      for (uint64_t i = 0; i < length; ++i)
        equal = equal && static_cast<unsigned char>(bytes[i]) == fake_byte(file, offset + i);
      CHECK(equal);
    });
    if (answers_) source.complete_all();
    if (store != nullptr) store->settle();
  }

  const bool answers_;
  FakeStore* const store;
  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  FileId file;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;
  std::atomic<size_t> answered = 0;
  std::optional<Origin> origin;
  int error = 0;
  uint64_t start = 0;
};

}  // namespace

TEST_CASE("of a chunk that no tier would keep only the range is read, however small the chunk is") {
  RangeFixture f(4, 0);
  for (uint64_t record = 0; record < 64; ++record) {
    f.acquire(record * kRangeRecord, kRangeRecord);
    CHECK(f.start == record * kRangeRecord % kRangeChunk);
  }
  CHECK(f.answered == 64);
  CHECK(f.source.fetches == 64);
  CHECK(f.source.bytes == 64 * kRangeRecord);
  CHECK(f.source.deadlines() == std::vector<uint64_t>(64, 77));
  CHECK(!f.cache->resident(f.chunk(0)));
}

TEST_CASE("a file with smaller chunks than others is read by those, whole or in part") {
  for (const uint64_t ram : {uint64_t{0}, uint64_t{3} * kRangeChunk}) {
    RangeFixture f(4, ram, true, nullptr, 8 * kRangeChunk);
    for (uint64_t offset = 0; offset < 4 * kRangeChunk; offset += kRangeRecord)
      f.acquire(offset, kRangeRecord);
    CHECK(f.answered == 64);
    CHECK(f.source.bytes == 4 * kRangeChunk);
    const uint64_t begin = kRangeChunk - 1000;  // over two borders of chunks
    bool right = false;
    f.cache->read(f.file, begin, kRangeChunk + 2000, [&](Result<ReadView> view) {
      REQUIRE(view.ok());
      const std::string bytes = joined(view->memory);
      right = bytes.size() == kRangeChunk + 2000;
      for (uint64_t i = 0; right && i < bytes.size(); ++i)
        right = static_cast<unsigned char>(bytes[i]) == fake_byte(f.file, begin + i);
    });
    f.source.complete_all();
    CHECK(right);
  }
}

TEST_CASE("a READ without neighbours takes from the source what it asks for, and others the chunk") {
  using Neighbours = ChunkCache::Neighbours;
  constexpr uint64_t kPage = 4096;
  const uint64_t begin = kRangeChunk - kPage / 2;  // over a border of chunks
  for (const auto& [neighbours, bytes] :
       {std::pair(Neighbours::none, kPage), std::pair(Neighbours::likely, uint64_t{2} * kRangeChunk)}) {
    RangeFixture f(4, 0);
    std::string got;
    f.cache->read(
        f.file, begin, kPage,
        [&](Result<ReadView> view) {
          REQUIRE(view.ok());
          got = joined(view->memory);
        },
        {}, neighbours);
    f.source.complete_all();
    REQUIRE(got.size() == kPage);
    bool right = true;
    for (uint64_t i = 0; i < kPage; ++i)
      right = right && static_cast<unsigned char>(got[i]) == fake_byte(f.file, begin + i);
    CHECK(right);
    CHECK(f.source.bytes == bytes);
  }
}

TEST_CASE("nearly all of a chunk is not worth reading by range") {
  RangeFixture f(2, 0);
  const uint64_t most = kRangeChunk / 4 * 3;
  f.acquire(0, most);
  CHECK(f.source.bytes == most);
  CHECK(!f.cache->resident(f.chunk(0)));
  f.acquire(kRangeChunk + 512, kRangeChunk - 512);
  CHECK(f.start == 0);
  CHECK(f.source.bytes == most + kRangeChunk);
  CHECK(f.cache->resident(f.chunk(1)));
}

TEST_CASE("a range of a chunk that a tier would keep brings the chunk, and later ones find it") {
  RangeFixture f(2, kRangeChunk);
  f.acquire(100, kRangeRecord);
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
  CHECK(f.source.bytes == kRangeChunk);
  f.acquire(kRangeChunk - kRangeRecord, kRangeRecord);
  CHECK(f.origin == Origin::ram);
  CHECK(f.start == 0);
  CHECK(f.source.bytes == kRangeChunk);
  f.acquire(kRangeChunk, kRangeRecord);  // the tier is full
  CHECK(f.source.bytes == kRangeChunk + kRangeRecord);
}

TEST_CASE("a range joins the fetch of its chunk and makes it as urgent as itself") {
  RangeFixture f(1, 0, false);
  size_t whole = 0;
  f.cache->acquire(f.chunk(0), {Priority::Kind::background, 1}, [&](const auto&) { ++whole; });
  f.acquire(kRangeRecord, kRangeRecord);
  CHECK(f.source.fetches == 1);
  CHECK(f.source.raised == 1);
  f.source.complete_all();
  CHECK((whole == 1 && f.answered == 1));
}

TEST_CASE("a range of a chunk on NVMe comes from there") {
  FakeStore store(4 * kRangeChunk);
  RangeFixture f(1, 0, true, &store);
  f.acquire(0, kRangeRecord);
  REQUIRE(f.cache->tier_of(f.chunk(0)) == Tier::nvme);
  CHECK(f.cache->stop(1min));
  f.mount(0);
  f.acquire(5 * kRangeRecord, kRangeRecord);
  CHECK(f.origin == Origin::nvme);
  CHECK(f.source.bytes == kRangeChunk);
}

TEST_CASE("prefetched ranges take no more than the transit memory, and wait for it behind readers") {
  const size_t fit = TransitShares::for_chunks(kRangeChunk).capacity / kRangeRecord;
  const size_t extra = 10;
  RangeFixture f(static_cast<uint32_t>(2 * fit * kRangeRecord / kRangeChunk), 0, false);
  for (size_t i = 0; i < fit + extra; ++i) f.acquire(i * kRangeRecord, kRangeRecord);
  CHECK(f.source.fetches == fit);
  CHECK(f.metrics.transit_bytes.value() == static_cast<int64_t>(fit * kRangeRecord));
  f.acquire((fit + extra) * kRangeRecord, kRangeRecord, Priority{});
  f.source.complete_one();
  CHECK(f.source.points().wait_until([&] { return f.source.fetches == fit + 1; }));
  CHECK(f.source.deadlines().size() == fit);  // so it was the reader's
  CHECK(f.source.complete_until([&] { return f.answered == fit + extra + 1; }));
  CHECK(f.metrics.transit_bytes.value() == 0);
}

TEST_CASE("a range that cannot be read says why, and after stop() none is begun") {
  RangeFixture f(1, 0, false);
  f.acquire(0, kRangeRecord);
  f.source.complete_one(EIO);
  CHECK(f.error == EIO);
  f.acquire(0, kRangeRecord);
  CHECK(f.cache->stop(1min));
  CHECK(f.error == ECANCELED);
  f.acquire(0, kRangeRecord);
  CHECK(f.answered == 3);
}

TEST_CASE("what is needed of a chunk that RAM keeps comes first, and the rest into the same memory") {
  RangeFixture f(2, kRangeChunk, false);
  const uint64_t begin = 6 * kRangeRecord + 100;
  f.acquire(begin, 4 * kRangeRecord);
  CHECK(f.source.fetches == 3);
  CHECK(f.source.with_next == 2);
  CHECK(f.source.bytes == kRangeChunk);
  CHECK(f.source.deadlines() == std::vector<uint64_t>{77});  // none of the rest, before and behind
  f.source.complete_one();
  CHECK(f.answered == 1);
  CHECK(f.origin == Origin::pfs);
  CHECK(!f.cache->resident(f.chunk(0)));
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::none);
  f.acquire(begin + 10, kRangeRecord);
  CHECK(f.answered == 2);
  CHECK(f.origin == Origin::ram);
  f.cache->evict(f.chunk(0));  // does not stop what is under way
  f.source.complete_all();
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
  f.acquire(0, kRangeChunk);
  CHECK(f.answered == 3);
  CHECK(f.source.bytes == kRangeChunk);
  CHECK(f.metrics.ram_bytes.value() == kRangeChunk);
  f.cache->evict(f.chunk(0));
  CHECK(f.metrics.ram_bytes.value() == 0);
}

TEST_CASE("a range is answered when all parts are there that have some of it, and makes them urgent") {
  RangeFixture f(2, kRangeChunk, false);
  f.acquire(6 * kRangeRecord, 4 * kRangeRecord);
  f.acquire(8 * kRangeRecord, 4 * kRangeRecord);  // half of it behind those
  CHECK(f.source.raised == 1);
  f.acquire(0, kRangeRecord, Priority{});  // before them
  CHECK(f.source.raised == 2);
  size_t whole = 0;
  f.cache->acquire(f.chunk(0), {Priority::Kind::prefetch, 78}, [&](const auto&) { ++whole; });
  CHECK(f.source.raised == 2);
  f.source.complete_at(2);  // what lies behind
  CHECK(f.answered == 0);
  f.source.complete_at(0);
  CHECK(f.answered == 2);
  CHECK(whole == 0);
  f.source.complete_one();
  CHECK(f.answered == 3);
  CHECK(whole == 1);
  CHECK(f.source.fetches == 3);
}

TEST_CASE("another node that wants a chunk makes all its parts urgent and gets it whole") {
  RangeFixture f(2, kRangeChunk, false);
  f.acquire(6 * kRangeRecord, 4 * kRangeRecord);
  size_t whole = 0;
  const auto fetch = f.cache->acquire_within(FetchScope::local_or_pfs, f.chunk(0),
                                             {Priority::Kind::prefetch, 78}, [&](const auto&) { ++whole; });
  REQUIRE(fetch.has_value());
  REQUIRE(*fetch != nullptr);
  CHECK(f.source.raised == 2);
  f.cache->raise(*fetch, Priority{});
  CHECK(f.source.raised == 5);
  f.source.complete_one();
  CHECK(f.answered == 1);
  CHECK(whole == 0);
  f.source.complete_all();
  CHECK(whole == 1);
}

TEST_CASE(
    "a chunk comes whole for a reader or a fill, for little or nearly all of it, and where RAM keeps none") {
  const Priority fill{Priority::Kind::background, 1};
  struct Wanted {
    uint64_t length;
    Priority priority;
  };
  for (const Wanted& wanted :
       {Wanted{4 * kRangeRecord, Priority{}}, Wanted{4 * kRangeRecord, fill},
        Wanted{kRangeRecord, kRangePrefetch}, Wanted{15 * kRangeRecord, kRangePrefetch}}) {
    RangeFixture f(2, kRangeChunk, false);
    f.acquire(0, wanted.length, wanted.priority);
    CHECK(f.source.fetches == 1);
    CHECK(f.source.bytes == kRangeChunk);
    f.source.complete_all();
    CHECK(f.answered == 1);
  }
  RangeFixture only(1, kRangeChunk, false);
  only.acquire(0, 4 * kRangeRecord);
  CHECK(only.source.fetches == 1);  // by which its file is opened
  FakeStore store(4 * kRangeChunk);
  RangeFixture nvme(2, 0, true, &store);
  nvme.acquire(0, 4 * kRangeRecord);
  CHECK(nvme.source.fetches == 1);
  CHECK(nvme.cache->tier_of(nvme.chunk(0)) == Tier::nvme);
  RangeFixture job(2, kRangeChunk, false);
  job.source.has_peers = true;
  job.acquire(0, 4 * kRangeRecord);
  CHECK(job.source.peer_fetches == 1);
  CHECK(job.source.fetches == 1);
}

TEST_CASE("a chunk for NVMe comes in parts to RAM, in the place of one that NVMe has a copy of") {
  FakeStore store(4 * kRangeChunk);
  RangeFixture f(2, kRangeChunk, false, &store);
  f.fill_ram(1);
  REQUIRE(f.metrics.nvme_copies.value() == 1);
  f.acquire(kRangeChunk, 4 * kRangeRecord);
  CHECK(f.source.fetches == 3);
  CHECK(f.tier(0) == Tier::nvme);
  f.source.complete_one();
  CHECK(f.answered == 2);
  CHECK(f.tier(1) == Tier::none);
  f.complete_all();
  CHECK(f.tier(1) == Tier::ram);
  CHECK(f.metrics.ram_bytes.value() == kRangeChunk);
  CHECK(f.cache->space().nvme == 3 * kRangeChunk);
  f.copy_all();
  CHECK(store.chunks() == 2);
  f.acquire(0, kRangeChunk);
  CHECK(f.origin == Origin::nvme);
  CHECK(f.source.bytes == 2 * kRangeChunk);
}

TEST_CASE("a chunk for NVMe comes whole for a reader, from another node, and where NVMe has no copies") {
  struct Case {
    bool copied;
    bool peers;
    Priority priority;
  };
  for (const Case& now : {Case{false, false, kRangePrefetch}, Case{true, true, kRangePrefetch},
                          Case{true, false, Priority{}}}) {
    FakeStore store(4 * kRangeChunk);
    RangeFixture f(2, kRangeChunk, false, &store);
    f.acquire(0, kRangeChunk);
    f.complete_all();
    if (now.copied) f.copy_all();
    f.source.has_peers = now.peers;
    f.acquire(kRangeChunk, 4 * kRangeRecord, now.priority);
    CHECK(f.source.fetches == 2);
    f.complete_all();
    CHECK(f.answered == 2);
    CHECK(f.tier(0) == Tier::ram);
    CHECK(f.tier(1) == Tier::nvme);
  }
}

TEST_CASE("no more than a quarter of RAM makes place for parts before NVMe has written something") {
  FakeStore store(8 * kRangeChunk);
  RangeFixture f(7, 4 * kRangeChunk, false, &store);
  f.fill_ram(4);
  const auto fetches_for = [&f](uint64_t chunk) {
    const uint64_t before = f.source.fetches;
    f.acquire(chunk * kRangeChunk, 4 * kRangeRecord);
    return f.source.fetches - before;
  };
  CHECK(fetches_for(4) == 2);
  CHECK(fetches_for(5) == 1);
  f.complete_all();
  CHECK(f.tier(5) == Tier::nvme);
  CHECK(fetches_for(6) == 2);
  f.complete_all();
  for (uint32_t i = 0; i < 7; ++i) CHECK(f.tier(i) == (i < 2 || i == 5 ? Tier::nvme : Tier::ram));
}

TEST_CASE("as long as NVMe writes copies RAM makes place for parts") {
  FakeStore store(8 * kRangeChunk);
  RangeFixture f(8, 4 * kRangeChunk, false, &store);
  f.fill_ram(4);
  for (uint32_t i = 4; i < 8; ++i) {
    f.acquire(uint64_t{i} * kRangeChunk, 4 * kRangeRecord);
    CHECK(f.source.pending() == 2);
    f.complete_all();
    f.copy_all();
  }
  for (uint32_t i = 0; i < 8; ++i) CHECK(f.tier(i) == (i < 4 ? Tier::nvme : Tier::ram));
  CHECK(store.chunks() == 8);
}

TEST_CASE("each chunk that RAM takes instead of NVMe is owed a copy, however late it comes") {
  FakeStore store(12 * kRangeChunk);
  RangeFixture f(10, 8 * kRangeChunk, false, &store);
  f.fill_ram(8);
  for (uint64_t i = 8; i < 10; ++i) f.acquire(i * kRangeChunk, 4 * kRangeRecord);
  REQUIRE(f.source.pending() == 4);
  for (uint32_t i = 8; i < 10; ++i) {
    CHECK(f.cache->ram_backup().copies_owed() == 0);
    f.source.complete_one();
    f.source.complete_one();
    REQUIRE(f.tier(i) == Tier::ram);
    CHECK(f.cache->ram_backup().copies_owed() == 1);
    f.copy_all();
  }
  CHECK(f.metrics.nvme_copies.value() == 8);
}

TEST_CASE("where a part for RAM instead of NVMe fails, the room is free again in both") {
  FakeStore store(4 * kRangeChunk);
  RangeFixture f(2, kRangeChunk, false, &store);
  f.fill_ram(1);
  f.acquire(kRangeChunk, 4 * kRangeRecord);
  f.source.complete_one(EIO);
  CHECK(f.error == EIO);
  f.complete_all();
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.cache->space().ram == kRangeChunk);
  CHECK(f.cache->space().nvme == 3 * kRangeChunk);
  CHECK(f.cache->ram_backup().copies_owed() == 0);
}

TEST_CASE("a chunk for NVMe comes whole while its place in RAM is still read, and goes there then") {
  FakeStore store(4 * kRangeChunk);
  RangeFixture f(2, kRangeChunk, false, &store);
  f.fill_ram(1);
  ChunkRef pin = f.cache->resident(f.chunk(0));
  f.acquire(kRangeChunk, 4 * kRangeRecord);
  CHECK(f.source.fetches == 2);
  pin = ChunkRef();
  f.complete_all();
  CHECK(f.answered == 2);
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.tier(1) == Tier::ram);
  CHECK(f.metrics.ram_bytes.value() == kRangeChunk);
}

TEST_CASE("so many chunks come in parts at a time, and others whole") {
  RangeFixture f(4, 0, false);
  ChunkCache::Deps deps{*f.catalog, f.source, {}, f.policy, f.metrics, f.log.logger()};
  deps.most_in_parts = 2;
  f.cache = std::move(*ChunkCache::create(deps, 4 * kRangeChunk));
  const auto fetches_for = [&f](uint64_t chunk) {
    const uint64_t before = f.source.fetches;
    f.acquire(chunk * kRangeChunk, 4 * kRangeRecord);
    return f.source.fetches - before;
  };
  CHECK(fetches_for(0) == 2);
  CHECK(fetches_for(1) == 2);
  CHECK(fetches_for(2) == 1);
  f.source.complete_one();
  f.source.complete_one(EIO);  // the rest of the first
  CHECK(fetches_for(3) == 2);
  f.source.complete_all();
  CHECK(f.answered == 4);
}

TEST_CASE("where a part fails all who wait fail, and the chunk is fetched anew in other memory") {
  RangeFixture f(2, 2 * kRangeChunk, false);
  f.acquire(6 * kRangeRecord, 4 * kRangeRecord);
  f.source.complete_one();
  CHECK(f.answered == 1);
  f.acquire(0, kRangeRecord);
  f.acquire(12 * kRangeRecord, kRangeRecord);
  f.source.complete_one(EIO);
  CHECK(f.answered == 3);
  CHECK(f.error == EIO);
  CHECK(f.metrics.ram_bytes.value() == kRangeChunk);  // a part is still under way
  f.error = 0;
  f.acquire(0, 4 * kRangeRecord);
  CHECK(f.source.pending() == 3);
  CHECK(f.metrics.ram_bytes.value() == 2 * kRangeChunk);
  f.source.complete_one();
  CHECK(f.answered == 3);
  CHECK(f.metrics.ram_bytes.value() == kRangeChunk);
  f.source.complete_all();
  CHECK(f.answered == 4);
  f.acquire(0, kRangeChunk);
  CHECK(f.answered == 5);
  CHECK(f.error == 0);
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
}

TEST_CASE("stop() answers those who wait for a part") {
  RangeFixture f(2, kRangeChunk, false);
  f.acquire(6 * kRangeRecord, 4 * kRangeRecord);
  f.acquire(0, kRangeRecord);
  f.source.complete_one();
  CHECK(f.answered == 1);
  CHECK(f.cache->stop(1min));
  CHECK(f.answered == 2);
  CHECK(f.error == ECANCELED);
  CHECK(f.metrics.ram_bytes.value() == 0);
}

TEST_CASE("in whatever order parts and callers come, each gets its bytes, and none is read twice") {
  std::mt19937_64 random(918273646);
  const auto below = [&random](uint64_t limit) { return random() % limit; };
  for (int time = 0; time < 20; ++time) {
    RangeFixture f(2, kRangeChunk, false);
    size_t asked = 0;
    for (int step = 0; step < 30; ++step) {
      if (below(3) == 0) {
        f.source.complete_at(below(3));
        continue;
      }
      const uint64_t length = 1 + below(kRangeChunk / 2);
      f.acquire(below(kRangeChunk - length), length);  // checks them
      ++asked;
    }
    f.source.complete_all();
    CHECK(f.answered == asked);
    CHECK(f.error == 0);
    CHECK(f.source.bytes == kRangeChunk);
  }
}

TEST_CASE("parts may come on several threads while others ask for them") {
  for (int time = 0; time < 20; ++time) {
    RangeFixture f(2, kRangeChunk, false);
    std::atomic<size_t> right = 0;
    const auto acquire = [&f, &right](uint64_t begin) {
      f.cache->acquire_range(
          f.file, begin, 4 * kRangeRecord, kRangePrefetch,
          [&f, &right, begin](const Result<AcquiredChunk>& got) {
            if (!got) return;
            const std::string bytes = joined(got->data->block.slices(begin, 4 * kRangeRecord));
            bool equal = true;
            for (uint64_t i = 0; i < bytes.size(); ++i)
              equal = equal && static_cast<unsigned char>(bytes[i]) == fake_byte(f.file, begin + i);
            right += equal ? 1 : 0;
          });
    };
    acquire(6 * kRangeRecord);
    CHECK(f.source.fetches == 3);
    {
      std::vector<std::jthread> threads;
      for (int part = 0; part < 3; ++part) threads.emplace_back([&f] { f.source.complete_one(); });
      for (const uint64_t record : {0, 4, 12}) acquire(record * kRangeRecord);
    }
    CHECK(right == 4);
    CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
  }
}
