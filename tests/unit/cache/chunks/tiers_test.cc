// What NVMe has no time for.
#include "cache/chunks/tiers.h"

#include "cache/catalog/scan.h"
#include "cache/chunks/chunk_cache.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/fake_store.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kTierChunk = 64 << 10;

/// Files of one chunk each behind a RAM tier and a store, counted in chunks.
struct SlowStoreFixture {
  /// The store has room for all.
  SlowStoreFixture(size_t files, uint64_t ram) : SlowStoreFixture(files, ram, files + ram) {}
  SlowStoreFixture(size_t files, uint64_t ram, uint64_t nvme) : store(nvme * kTierChunk) {
    for (size_t i = 0; i < files; ++i) tree.write("f" + std::to_string(10000 + i), kTierChunk);
    ScanOptions options;
    options.chunk_size = kTierChunk;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    cache = std::move(
        *ChunkCache::create({*catalog, source, {&store}, policy, metrics, log.logger()}, ram * kTierChunk));
  }
  ~SlowStoreFixture() {
    store.set_slow(false);
    CHECK(cache->stop(1min));
  }

  FileId file(size_t i) const { return *catalog->find("f" + std::to_string(10000 + i)); }
  ChunkId chunk(size_t i) const { return catalog->chunks(file(i)).first; }
  Tier tier(size_t i) const { return cache->tier_of(chunk(i)); }
  /// Every byte is right.
  bool read(size_t i) {
    const FileId id = file(i);  // once: a search for each byte would be most of the test
    bool right = false;
    cache->acquire(chunk(i), Priority{}, [&](const Result<AcquiredChunk>& result) {
      right = bool(result);
      uint64_t at = 0;
      for (const iovec& part : result->data->block.slices(0, kTierChunk)) {
        const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
        for (size_t b = 0; b < part.iov_len; ++b) right = right && bytes[b] == fake_byte(id, at++);
      }
    });
    do source.complete_all();
    while (store.settle());
    return right;
  }
  void read_range(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) CHECK(read(i));
  }
  size_t copy_all() {
    size_t copied = 0;
    for (; cache->ram_backup().copy_next() == RamBackup::Outcome::copied; ++copied) store.settle();
    return copied;
  }
  size_t in_tier(Tier wanted) const {
    size_t count = 0;
    for (uint32_t c = 0; c < catalog->chunk_count(); ++c)
      count += cache->tier_of(ChunkId(c)) == wanted ? 1 : 0;
    return count;
  }
  /// Chunks whose writes may wait at a time.
  static size_t most_writes() { return TransitShares::for_chunks(kTierChunk).nvme_writes / kTierChunk; }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  FakeStore store;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;
};

}  // namespace

TEST_CASE("what NVMe has no time for is written when it has, if it is still in memory") {
  const size_t most = SlowStoreFixture::most_writes();
  SlowStoreFixture f(2 * most, 0);
  f.store.set_slow(true);
  f.read_range(0, 2 * most);  // no read waits for a write
  CHECK(f.store.held() == most);
  CHECK(f.in_tier(Tier::nvme) == 0);
  f.store.write_some(3);
  CHECK(f.store.held() == most);
  f.store.set_slow(false);
  CHECK(f.in_tier(Tier::nvme) == 2 * most);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
  f.read_range(0, 2 * most);
  CHECK(f.source.fetches == 2 * most);
}

TEST_CASE("no read waits for a disk that hangs, and what is not kept is counted") {
  const size_t most = SlowStoreFixture::most_writes();
  const size_t files = 10 * most;
  SlowStoreFixture f(files, 0);
  f.store.set_slow(true);
  f.read_range(0, files);
  const TransitShares shares = TransitShares::for_chunks(kTierChunk);
  CHECK(f.metrics.transit_bytes.value() <= static_cast<int64_t>(shares.capacity));
  CHECK(f.store.held() == most);
  f.store.set_slow(false);
  const size_t kept = f.in_tier(Tier::nvme);
  CHECK(kept >= 2 * most);
  CHECK(f.metrics.nvme_writes_skipped.value() == files - kept);
  f.read_range(0, files);
  CHECK(f.source.fetches == files + files - kept);
}

TEST_CASE("what NVMe has no time for goes to RAM in the place of what it has copies of") {
  const size_t most = SlowStoreFixture::most_writes();
  const size_t ram = 4 * most;
  SlowStoreFixture f(ram + 2 * most, ram);
  f.read_range(0, ram);
  CHECK(f.copy_all() == ram);
  f.store.set_slow(true);
  f.read_range(ram, ram + 2 * most);
  CHECK(f.in_tier(Tier::ram) == ram);
  CHECK(f.in_tier(Tier::nvme) == most);  // without a write
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.tier(ram + 2 * most - 1) == Tier::ram);
  CHECK(f.metrics.ram_bytes.value() <= static_cast<int64_t>(ram * kTierChunk));
  CHECK(f.metrics.nvme_copies.value() == static_cast<int64_t>(ram - most));
  f.store.set_slow(false);
  CHECK(f.copy_all() == most);
  f.read_range(0, ram + 2 * most);
  CHECK(f.source.fetches == ram + 2 * most);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("what goes to RAM in the place of a copy leaves it the room on NVMe that it was promised itself") {
  const size_t most = SlowStoreFixture::most_writes();
  const size_t ram = 4 * most;
  SlowStoreFixture f(ram + most + 1, ram, most + 1);
  f.read_range(0, ram);
  REQUIRE(f.cache->ram_backup().copy_next() == RamBackup::Outcome::copied);
  f.store.settle();
  f.store.set_slow(true);
  f.read_range(ram, ram + most);
  REQUIRE(f.store.held() == most);
  REQUIRE(f.store.available() == 0);
  CHECK(f.read(ram + most));
  CHECK(f.tier(ram + most) == Tier::ram);
  CHECK(f.tier(0) == Tier::nvme);
}

TEST_CASE("while a disk hangs, most of the RAM tier stays where it is") {
  const size_t most = SlowStoreFixture::most_writes();
  const size_t ram = 4 * most;
  SlowStoreFixture f(ram + 8 * most + 1, ram);
  f.read_range(0, ram);
  CHECK(f.copy_all() == ram);
  f.store.set_slow(true);
  f.read_range(ram, ram + 8 * most);
  const auto stayed = [&] {
    size_t count = 0;
    for (size_t i = 0; i < ram; ++i) count += f.tier(i) == Tier::ram ? 1 : 0;
    return count;
  };
  CHECK(stayed() == ram - most);
  f.store.write_some(1);  // it goes on
  CHECK(f.read(ram + 8 * most));
  CHECK(f.tier(ram + 8 * most) == Tier::ram);
  CHECK(stayed() == ram - most - 1);
}

TEST_CASE("a store that waits for its disk to grow holds up no fetch") {
  SlowStoreFixture f(3, 0);
  f.store.hold_growth();
  f.read_range(0, 3);
  CHECK(f.in_tier(Tier::nvme) == 0);
  f.store.let_grow();
  CHECK(eventually([&] { return f.in_tier(Tier::nvme) == 3; }));
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}
