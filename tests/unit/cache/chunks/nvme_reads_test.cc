// Reads that NVMe does not answer.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "cache/catalog/chunk_key.h"
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

constexpr uint32_t kFileBytes = 64 << 10;  // one chunk
const size_t kFiles = TransitShares::for_chunks(kFileBytes).capacity / kFileBytes;

/// Files that are all on NVMe and not in memory, behind a cache that waits 20 ms for a read of them. All of
/// them together are as much as transit memory holds.
struct WarmStore {
  /// `compare_files`: with the source, before the first use of what NVMe has of one. `two_stores`: half of
  /// the files are in another one.
  explicit WarmStore(bool compare_files = false, bool two_stores = false)
      : compares(compare_files), has_two(two_stores) {
    for (size_t i = 0; i < kFiles; ++i) tree.write("f" + std::to_string(i), kFileBytes);
    ScanOptions options;
    options.chunk_size = kFileBytes;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    mount();
    for (size_t i = 0; i < kFiles; ++i) {  // one by one, lest the store falls behind
      ask(i);
      do source->complete_all();
      while (store.settle() || other.settle());
    }
    mount();
  }
  ~WarmStore() {
    store.hold_reads(false);
    CHECK(cache->stop(1min));
  }

  void mount() {
    if (cache) CHECK(cache->stop(1min));
    cache.reset();
    source.emplace();  // stop() ends one for good
    ChunkCache::Deps deps{*catalog, *source, {&store}, policy, metrics, log.logger()};
    if (has_two) deps.stores.push_back(&other);
    deps.verify_warm_files = compares;
    deps.nvme_patience = 20ms;
    cache = std::move(*ChunkCache::create(deps, 0));
  }
  FileId file(size_t i) const { return *catalog->find("f" + std::to_string(i)); }
  ChunkId chunk(size_t i) const { return catalog->chunks(file(i)).first; }
  /// Counts it as right, once it is there with all of its bytes.
  void ask(size_t i) {
    const FileId id = file(i);  // once: a search for each byte would be most of the test
    cache->acquire(chunk(i), Priority{}, [this, id](const Result<AcquiredChunk>& result) {
      bool same = bool(result);
      uint64_t at = 0;
      if (same) {
        for (const iovec& part : result->data->block.slices(0, kFileBytes)) {
          const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
          for (size_t b = 0; b < part.iov_len; ++b) same = same && bytes[b] == fake_byte(id, at++);
        }
      }
      ++(same ? right : wrong);
    });
  }

  const bool compares;
  const bool has_two;
  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  std::optional<FakeSource> source;
  FakeStore store{kFiles * kFileBytes};
  FakeStore other{kFiles * kFileBytes};
  std::shared_ptr<const Catalog> catalog;
  std::atomic<size_t> right{0};
  std::atomic<size_t> wrong{0};
  std::unique_ptr<ChunkCache> cache;
};

}  // namespace

TEST_CASE("what NVMe does not bring in time comes from the source, and so does what else it has meanwhile") {
  WarmStore f;
  REQUIRE(f.right == kFiles);
  f.store.hold_reads(true);
  f.ask(0);
  REQUIRE(eventually([&] { return f.source->pending() == 1; }));
  CHECK(f.log.has("the disk does not answer a read"));
  CHECK(f.source->complete_one());
  CHECK(f.right == kFiles + 1);
  f.ask(1);  // it does not wait for that disk
  CHECK(f.source->complete_one());
  CHECK(f.right == kFiles + 2);
  for (size_t i = 0; i < kFiles; ++i) CHECK(f.cache->tier_of(f.chunk(i)) == Tier::nvme);
  f.store.hold_reads(false);  // into memory that is the read's
  f.ask(2);
  CHECK(f.source->complete_until([&] { return f.right == kFiles + 3; }));
  CHECK(f.wrong == 0);
}

TEST_CASE("memory of reads that NVMe does not answer is not used again before they end") {
  WarmStore f;
  const int64_t before = f.metrics.transit_bytes.value();
  f.store.hold_reads(true);
  f.ask(0);
  REQUIRE(eventually([&] { return f.source->pending() == 1; }));
  CHECK(f.source->complete_one());
  CHECK(f.metrics.transit_bytes.value() == before + 2 * kFileBytes);
  f.store.hold_reads(false);
  CHECK(f.metrics.transit_bytes.value() == before + kFileBytes);
  CHECK(f.wrong == 0);
}

TEST_CASE("reads that NVMe does not answer leave memory to those of the source") {
  WarmStore f;
  f.store.hold_reads(true);
  for (size_t i = 0; i < kFiles; ++i) f.ask(i);
  CHECK(f.source->complete_until([&] { return f.right == 2 * kFiles; }));
  const TransitShares shares = TransitShares::for_chunks(kFileBytes);
  CHECK(f.metrics.transit_bytes.value() >= static_cast<int64_t>(shares.from_nvme));
  // Each that waits was given up. On a slow machine the first was so before all had begun.
  const uint64_t hung = std::min(f.store.reads_held() * kFileBytes, shares.from_nvme);
  REQUIRE(hung > 0);
  const uint64_t pinned = hung + f.cache->staging_share() + shares.nvme_writes;
  CHECK(pinned + f.catalog->largest_chunk() <= shares.capacity);
  f.store.hold_reads(false);
  CHECK(f.cache->staging_share() == shares.staging);
  CHECK(f.wrong == 0);
}

TEST_CASE("so do reads that NVMe does not answer of files that were compared with the source") {
  WarmStore f(true);
  f.store.hold_reads(true);
  for (size_t i = 0; i < kFiles; ++i) f.ask(i);
  CHECK(f.source->complete_until([&] { return f.right == 2 * kFiles; }));
  f.store.hold_reads(false);
  CHECK(f.wrong == 0);
}

TEST_CASE("what another store has comes though reads that hang have all memory of reads from NVMe") {
  WarmStore f(false, true);
  REQUIRE(f.store.chunks() * kFileBytes >= TransitShares::for_chunks(kFileBytes).from_nvme);
  REQUIRE(f.other.chunks() > 0);
  f.store.hold_reads(true);
  for (const bool held : {true, false}) {
    for (size_t i = 0; i < kFiles; ++i) {
      if ((f.store.length_of(chunk_key(*f.catalog, f.chunk(i))) != 0) == held) f.ask(i);
    }
  }
  CHECK(f.source->complete_until([&] { return f.right == 2 * kFiles; }));
  f.store.hold_reads(false);
  CHECK(f.wrong == 0);
}
