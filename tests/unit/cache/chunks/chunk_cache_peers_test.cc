#include <atomic>
#include <optional>

#include "cache/catalog/scan.h"
#include "cache/chunks/chunk_cache.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kPeersChunk = 64 << 10;
const size_t kTransitChunks = TransitShares::for_chunks(kPeersChunk).capacity / kPeersChunk;

/// A cache of a node that has peers; fetches wait until the test completes them.
struct PeersFixture {
  explicit PeersFixture(size_t files, uint64_t ram = 0) {
    source.has_peers = true;
    for (size_t i = 0; i < files; ++i) tree.write("f" + std::to_string(1000 + i), kPeersChunk);
    ScanOptions options;
    options.chunk_size = kPeersChunk;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    cache = std::move(*ChunkCache::create({*catalog, source, {}, policy, metrics, log.logger()}, ram));
  }
  ~PeersFixture() { CHECK(cache->stop(1min)); }

  FileId file(size_t i) const { return *catalog->find("f" + std::to_string(1000 + i)); }
  ChunkId chunk(size_t i) const { return catalog->chunks(file(i)).first; }
  AcquireDone count() {
    return [this](const Result<AcquiredChunk>& result) {
      ++answered;
      if (result) last = result->data;
      if (result) origin = result->origin;
    };
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;
  size_t answered = 0;
  ChunkRef last;
  std::optional<Origin> origin;
};

}  // namespace

TEST_CASE("what a peer brought is told from what the source brought") {
  PeersFixture f(2, 1 << 20);
  f.cache->acquire(f.chunk(0), {}, f.count());
  f.source.complete_all();
  CHECK(f.origin == Origin::peer);
  f.source.has_peers = false;
  f.cache->acquire(f.chunk(1), {}, f.count());
  f.source.complete_all();
  CHECK(f.origin == Origin::pfs);
}

TEST_CASE("for another node only what is here is given, or what the PFS has") {
  PeersFixture f(3, 1 << 20);
  CHECK(!f.cache->acquire_within(FetchScope::local_only, f.chunk(0), {}, f.count()));
  CHECK(f.source.fetches == 0);
  CHECK(f.cache->acquire_within(FetchScope::local_or_pfs, f.chunk(0), {}, f.count()));
  CHECK(f.source.fetches == 1);
  CHECK(f.source.peer_fetches == 0);
  f.source.complete_all();
  CHECK(f.answered == 1);
  CHECK(f.origin == Origin::pfs);
  CHECK(f.cache->acquire_within(FetchScope::local_only, f.chunk(0), {}, f.count()));
  CHECK(f.answered == 2);
  CHECK(f.origin == Origin::ram);
}

TEST_CASE("a fetch for another node is raised by what acquire_within() returned, and only upwards") {
  PeersFixture f(1, 1 << 20);
  const auto fetch = f.cache->acquire_within(FetchScope::local_or_pfs, f.chunk(0),
                                             {Priority::Kind::background, 7}, f.count());
  REQUIRE(fetch);
  REQUIRE(*fetch);
  f.cache->raise(*fetch, {Priority::Kind::prefetch, 9});
  CHECK((*fetch)->demand.now() == Priority{Priority::Kind::prefetch, 9});
  CHECK(f.source.raised == 1);
  f.cache->raise(*fetch, {Priority::Kind::background, 1});
  CHECK(f.source.raised == 1);
  f.source.complete_all();
  CHECK(f.answered == 1);
  const auto from_memory = f.cache->acquire_within(FetchScope::local_only, f.chunk(0), {}, f.count());
  REQUIRE(from_memory);
  CHECK(*from_memory == nullptr);
  CHECK(f.answered == 2);
}

TEST_CASE("another node never joins a fetch that waits for a peer") {
  PeersFixture f(2, 1 << 20);
  f.cache->acquire(f.chunk(0), {}, f.count());
  CHECK(f.source.peer_fetches == 1);
  CHECK(!f.cache->acquire_within(FetchScope::local_or_pfs, f.chunk(0), {}, f.count()));
  f.source.has_peers = false;
  f.cache->acquire(f.chunk(1), {}, f.count());
  CHECK(f.cache->acquire_within(FetchScope::local_only, f.chunk(1), {},
                                f.count()));  // joins what comes from the PFS
  CHECK(f.source.fetches == 2);
  f.source.complete_all();
  CHECK(f.answered == 3);
}

TEST_CASE("fetches that wait for peers leave most of the transit memory to others, and their turn") {
  PeersFixture f(3 * kTransitChunks);
  const size_t share = kTransitChunks / 4;
  size_t peers = 0;
  for (size_t i = 0; i < kTransitChunks; ++i) {
    f.cache->acquire(f.chunk(i), {Priority::Kind::demand, 0}, [&](const auto&) { ++peers; });
  }
  CHECK(f.source.fetches == share);
  f.source.has_peers = false;
  size_t served = 0;
  for (size_t i = 0; i < kTransitChunks; ++i) {
    CHECK(f.cache->acquire_within(FetchScope::local_or_pfs, f.chunk(kTransitChunks + i),
                                  {Priority::Kind::background, 0}, [&](const auto&) { ++served; }));
  }
  CHECK(f.source.fetches == kTransitChunks);
  // The oldest are those that wait for peers; let the others complete first.
  f.source.complete_last(kTransitChunks - share);
  CHECK(peers == 0);
  CHECK(served == kTransitChunks - share);
  CHECK(f.source.complete_until([&] { return peers == kTransitChunks && served == kTransitChunks; }));
}

TEST_CASE(
    "a fetch whose memory the network keeps is made again elsewhere, and that memory never used again") {
  PeersFixture f(2 * kTransitChunks);
  f.cache->acquire(f.chunk(0), {}, f.count());
  const std::vector<iovec> lost = f.source.oldest_memory();
  f.source.lose_one();
  CHECK(f.answered == 0);
  CHECK(f.source.fetches == 2);
  CHECK(f.source.peer_fetches == 1);  // not again from a peer
  CHECK(f.log.has("quarantined"));
  f.source.complete_all();
  CHECK(f.answered == 1);
  CHECK(f.origin == Origin::pfs);
  for (size_t i = 1; i < 2 * kTransitChunks; ++i) {
    f.cache->acquire(f.chunk(i), {}, f.count());
    REQUIRE(f.source.pending() == 1);
    CHECK(f.source.oldest_memory()[0].iov_base != lost[0].iov_base);
    f.source.complete_all();
  }
  CHECK(f.answered == 2 * kTransitChunks);
}

TEST_CASE("when too much memory is lost, other nodes are not asked any more") {
  PeersFixture f(kTransitChunks);
  size_t chunk = 0;
  for (; chunk < kTransitChunks; ++chunk) {
    const uint64_t before = f.source.peer_fetches;
    f.cache->acquire(f.chunk(chunk), {}, f.count());
    if (f.source.peer_fetches == before) break;
    f.source.lose_one();
    f.source.complete_all();
  }
  CHECK(chunk == kTransitChunks / 8 + 1);
  f.source.complete_all();
  CHECK(f.answered == chunk + 1);
}

TEST_CASE("a range read whose memory the network keeps is made again elsewhere") {
  TempTree tree;
  tree.write("big", 4 << 20);
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  source.has_peers = true;
  ScanOptions options;
  options.chunk_size = 2 << 20;
  const auto catalog = *scan_catalog(tree.path(), options, log.logger());
  const auto cache = std::move(*ChunkCache::create({*catalog, source, {}, policy, metrics, log.logger()}, 0));
  const FileId file = *catalog->find("big");
  int answered = 0;
  cache->read(file, (2 << 20) + 12345, 1000, [&](const Result<ReadView>& view) {
    REQUIRE(view);
    ++answered;
    CHECK(view->origin == Origin::pfs);
    const auto* bytes = static_cast<const unsigned char*>(view->memory[0].iov_base);
    CHECK(bytes[0] == fake_byte(file, (2 << 20) + 12345));
  });
  source.lose_one();
  CHECK(answered == 0);
  source.complete_all();
  CHECK(answered == 1);
  CHECK(cache->stop(1min));
}
