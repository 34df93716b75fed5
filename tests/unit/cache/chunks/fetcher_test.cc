#include "cache/chunks/fetcher.h"

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/made_up_catalog.h"

using namespace clairfs;

namespace {

constexpr uint32_t kFetchChunk = 256 << 10;
constexpr Priority kSoonRead{Priority::Kind::prefetch, 9};

/// A fetcher and what it uses, over a file of two chunks and one of one chunk. All runs on the test's thread:
/// there is always memory.
struct FetcherFixture {
  explicit FetcherFixture(uint64_t ram, size_t most_in_parts = 100)
      : table(catalog->chunk_count()),
        transit(std::move(*RamArena::create(shares.capacity)), shares, false, table, metrics, log.logger()),
        tiers({*catalog, {}, policy, table, transit, metrics, log.logger()},
              std::move(*RamArena::create(ram, kRamUnit)), ram, shares.nvme_writes),
        fetcher({*catalog, source, table, tiers, transit, metrics}, false, kNvmePatience, most_in_parts) {}
  ~FetcherFixture() {
    fetcher.stop();
    CHECK(fetcher.stopped());
    tiers.stop();
    transit.end();
    table.clear();
  }

  FileId file(uint32_t number) const { return *catalog->find("f" + std::to_string(10000 + number)); }
  ChunkId chunk(uint32_t number) const { return catalog->chunks(file(number)).first; }
  /// As the cache does for a caller that wants a piece of the first chunk of a file.
  void fetch(uint32_t number, Priority priority = {}, const ChunkPiece& piece = {}, bool may_wait = false) {
    const ChunkTable::Joined joined =
        table.join(FetchScope::anywhere, chunk(number), piece, may_wait, priority, {}, answer());
    REQUIRE(joined.starts);
    fetcher.start(joined.fetch);
  }
  AcquireDone answer() {
    return [this](const Result<AcquiredChunk>& result) {
      answers.push_back(result ? 0 : result.error().code);
      if (result) start = result->start;
    };
  }

  const std::shared_ptr<const Catalog> catalog = made_up_catalog({2 * kFetchChunk, kFetchChunk}, kFetchChunk);
  const TransitShares shares = TransitShares::for_chunks(kFetchChunk);
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  std::vector<int> answers;  // 0, or the error
  uint64_t start = 0;
  ChunkTable table;
  TransitPool transit;
  Tiers tiers;
  Fetcher fetcher;
};

}  // namespace

TEST_CASE("a fetch brings its chunk to the tier that is to keep it, or to readers alone") {
  const uint64_t ram = GENERATE(0U, 4 * kFetchChunk);
  FetcherFixture f(ram);
  f.fetch(1);
  CHECK(f.source.fetches == 1);
  CHECK_FALSE(f.fetcher.stopped());
  CHECK(f.answers.empty());
  REQUIRE(f.source.complete_one());
  CHECK(f.answers == std::vector{0});
  CHECK(f.table.resident(f.chunk(1)));
  CHECK(f.table.tier_of(f.chunk(1)) == (ram == 0 ? Tier::none : Tier::ram));
  CHECK(f.fetcher.stopped());
}

TEST_CASE("a fetch that fails answers with the error, and its room is another's") {
  FetcherFixture f(kFetchChunk);
  f.fetch(0);
  REQUIRE(f.source.complete_one(EIO));
  CHECK(f.answers == std::vector{EIO});
  CHECK_FALSE(f.table.here_or_coming(f.chunk(0)));
  f.fetch(1);
  REQUIRE(f.source.complete_one());
  CHECK(f.table.tier_of(f.chunk(1)) == Tier::ram);
}

TEST_CASE("a fetch whose memory a network keeps begins again with other memory, and asks no other node") {
  FetcherFixture f(0);
  f.source.has_peers = true;
  f.fetch(1, {}, {}, true);
  CHECK(f.source.peer_fetches == 1);
  REQUIRE(f.source.lose_one());
  CHECK(f.answers.empty());
  CHECK(f.source.fetches == 2);
  CHECK(f.source.peer_fetches == 1);
  REQUIRE(f.source.complete_one());
  CHECK(f.answers == std::vector{0});
  CHECK(f.log.has("quarantined"));
}

TEST_CASE("memory of the RAM tier that a network keeps is let go before the tier itself") {
  FetcherFixture f(kFetchChunk);
  f.source.has_peers = true;
  f.fetch(1, {}, {}, true);
  REQUIRE(f.source.lose_one());
  REQUIRE(f.source.complete_one());
  CHECK(f.answers == std::vector{0});
  CHECK(f.table.tier_of(f.chunk(1)) == Tier::none);
  CHECK(f.metrics.ram_bytes.value() == kFetchChunk);
  f.transit.end();
  CHECK(f.metrics.ram_bytes.value() == 0);
}

TEST_CASE("of a chunk that a plan needs a part of, that part is asked for first") {
  FetcherFixture f(4 * kFetchChunk);
  f.fetch(0, kSoonRead, {0, kFetchChunk / 4});
  CHECK(f.source.fetches == 2);
  CHECK(f.source.with_next == 1);
  CHECK(f.source.bytes == kFetchChunk);
  REQUIRE(f.source.complete_one());
  CHECK(f.answers == std::vector{0});
  CHECK_FALSE(f.table.resident(f.chunk(0)));
  CHECK_FALSE(f.fetcher.stopped());
  REQUIRE(f.source.complete_one());
  CHECK(f.answers.size() == 1);
  CHECK(f.table.tier_of(f.chunk(0)) == Tier::ram);
}

TEST_CASE("a chunk comes whole that is its file's only one, or that no tier is to keep, or one too many") {
  FetcherFixture single(4 * kFetchChunk);
  single.fetch(1, kSoonRead, {0, kFetchChunk / 4});
  CHECK(single.source.fetches == 1);
  FetcherFixture passing(0);
  passing.fetch(0, kSoonRead, {0, kFetchChunk / 4});
  CHECK(passing.source.fetches == 1);
  FetcherFixture many(4 * kFetchChunk, 0);
  many.fetch(0, kSoonRead, {0, kFetchChunk / 4});
  CHECK(many.source.fetches == 1);
}

TEST_CASE("a range that is read through leaves nothing behind") {
  FetcherFixture f(4 * kFetchChunk);
  f.fetcher.read_range(f.file(0), kFetchChunk + 100, 50, Priority{}, f.answer());
  CHECK(f.source.bytes == 50);
  REQUIRE(f.source.complete_one());
  CHECK(f.answers == std::vector{0});
  CHECK(f.start == 100);
  CHECK(f.fetcher.stopped());
  for (uint32_t c = 0; c < f.catalog->chunk_count(); ++c) CHECK_FALSE(f.table.here_or_coming(ChunkId(c)));
}

TEST_CASE("once a fetcher stops, what the source has ends, and what is asked for later is not begun") {
  FetcherFixture f(0);
  f.fetch(0);
  f.fetcher.stop();
  CHECK(f.answers == std::vector{ECANCELED});
  CHECK(f.fetcher.stopped());
  f.fetch(1);
  f.fetcher.read_range(f.file(0), 0, 50, Priority{}, f.answer());
  CHECK(f.answers == std::vector{ECANCELED, ECANCELED, ECANCELED});
  CHECK(f.source.fetches == 1);
}
