#include "cache/chunks/chunk_cache.h"

#include <array>
#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "cache/base/mutex.h"
#include "cache/catalog/scan.h"
#include "cache/io/memory.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_source.h"
#include "tests/support/fake_store.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kChunk = 64 << 10;

/// A cache over a tree of files, whose bytes come from a FakeSource.
struct CacheFixture {
  explicit CacheFixture(const std::vector<uint64_t>& sizes, uint64_t ram,
                        const std::vector<FakeStore*>& nvme = {})
      : fakes(nvme), stores(nvme.begin(), nvme.end()) {
    for (size_t i = 0; i < sizes.size(); ++i) tree.write("f" + std::to_string(1000 + i), sizes[i]);
    ScanOptions options;
    options.chunk_size = kChunk;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    cache = std::move(*ChunkCache::create({*catalog, source, stores, policy, metrics, log.logger()}, ram));
  }
  ~CacheFixture() { CHECK(cache->stop(1min)); }

  FileId file(size_t i) const { return *catalog->find("f" + std::to_string(1000 + i)); }
  ChunkId chunk(size_t i) const { return catalog->chunks(file(i)).first; }

  /// Reads, with all fetches that wait, and checks every byte; the origin, or nothing if the read failed.
  std::optional<Origin> read(FileId id, uint64_t offset, uint64_t length) {
    std::optional<Origin> origin;
    std::atomic<bool> called = false;
    cache->read(id, offset, length, [&](const Result<ReadView>& view) {
      if (!view) return void(called = true);
      uint64_t at = offset;
      bool equal = true;
      for (const iovec& part : view->memory) {
        const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
        for (size_t i = 0; i < part.iov_len; ++i) equal = equal && bytes[i] == fake_byte(id, at++);
      }
      CHECK(equal);
      CHECK(at == offset + length);
      origin = view->origin;
      called = true;
    });
    CHECK(source.complete_until([&] { return called.load(); }));
    for (FakeStore* store : fakes) store->settle();
    return origin;
  }

  const std::vector<FakeStore*> fakes;
  const std::vector<NvmeStore*> stores;
  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;
};

}  // namespace

TEST_CASE("a chunk is fetched once and then served from RAM") {
  CacheFixture f({10000, kChunk + 5}, 1 << 20);
  CHECK(f.read(f.file(0), 0, 10000) == Origin::pfs);
  CHECK(f.read(f.file(0), 5000, 100) == Origin::ram);
  CHECK(f.source.fetches == 1);
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
  CHECK(f.cache->tier_of(f.chunk(1)) == Tier::none);
  CHECK(f.metrics.ram_bytes.value() == static_cast<int64_t>(round_to_ram_units(10000)));
}

TEST_CASE("what is on NVMe moves up to RAM where that can hold everything") {
  FakeStore store(1 << 20);
  const std::vector<uint64_t> sizes{10000, kChunk + 5};
  CacheFixture f(sizes, 0, {&store});
  for (size_t i = 0; i < sizes.size(); ++i) CHECK(f.read(f.file(i), 0, sizes[i]) == Origin::pfs);
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::nvme);
  CHECK(f.cache->stop(1min));
  f.cache = std::move(
      *ChunkCache::create({*f.catalog, f.source, {&store}, f.policy, f.metrics, f.log.logger()}, 1 << 20));
  const uint64_t fetches = f.source.fetches;
  for (int time = 0; time < 2; ++time) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      CHECK(f.read(f.file(i), 0, sizes[i]) == (time == 0 ? Origin::nvme : Origin::ram));
    }
    CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
    CHECK(f.cache->tier_of(f.chunk(1)) == Tier::ram);
  }
  CHECK(f.source.fetches == fetches);
}

TEST_CASE("NVMe is offered no more chunks while its writes are behind") {
  FakeStore store(64 << 20);
  CacheFixture f(std::vector<uint64_t>(200, kChunk), 0, {&store});
  store.set_slow(true);
  size_t read = 0;
  for (; read < 200 && f.cache->space().nvme > 0; ++read) f.read(f.file(read), 0, kChunk);
  CHECK(read > 1);
  CHECK(read * kChunk < TransitShares::for_chunks(kChunk).capacity / 4);
  CHECK(!f.cache->space().nvme_writable);
  CHECK(f.read(f.file(read), 0, kChunk) == Origin::pfs);
  store.set_slow(false);
  CHECK(f.cache->space().nvme > 0);
  CHECK(f.cache->space().nvme_writable);
  CHECK(store.chunks() == read + 1);  // the last one waited for it
}

TEST_CASE("NVMe room that a fetched chunk takes just now is not promised to another") {
  FakeStore store(kChunk);
  CacheFixture f({kChunk, kChunk}, 0, {&store});
  f.cache->acquire(f.chunk(0), {}, [](const auto&) {});
  store.set_meanwhile([&] { f.source.complete_one(); });
  f.cache->acquire(f.chunk(1), {}, [](const auto&) {});
  CHECK(f.source.complete_one());
  store.settle();
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::nvme);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("NVMe room that a chunk takes which waited for the disk is not promised to another") {
  const size_t most = TransitShares::for_chunks(kChunk).nvme_writes / kChunk;
  FakeStore store((most + 1) * kChunk);
  CacheFixture f(std::vector<uint64_t>(most + 2, kChunk), 0, {&store});
  store.set_slow(true);
  for (size_t i = 0; i <= most; ++i) f.read(f.file(i), 0, kChunk);  // the last one waits
  store.set_meanwhile([&] { f.cache->acquire(f.chunk(most + 1), {}, [](const auto&) {}); });
  store.write_some(1);
  CHECK(f.source.complete_one());
  store.set_slow(false);
  CHECK(store.chunks() == most + 1);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("a read over several chunks gets all of them in order") {
  CacheFixture f({5 * kChunk + 123}, 1 << 20);
  CHECK(f.read(f.file(0), kChunk - 10, 3 * kChunk) == Origin::pfs);
  CHECK(f.source.fetches == 4);
  CHECK(f.read(f.file(0), 0, 5 * kChunk + 123) == Origin::pfs);
  CHECK(f.source.fetches == 6);
  CHECK(f.read(f.file(0), 0, 5 * kChunk + 123) == Origin::ram);
  CHECK(f.source.bytes == 5 * kChunk + 123);
}

TEST_CASE("any number of readers of a missing chunk cause one fetch") {
  CacheFixture f({10000}, 1 << 20);
  std::atomic<int> answered{0};
  std::atomic<int> joined{0};
  std::vector<std::jthread> readers;
  for (int i = 0; i < 8; ++i) {
    readers.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        f.cache->acquire(f.chunk(0), Priority{}, [&](Result<AcquiredChunk> chunk) {
          ++answered;
          if (chunk && chunk->joined) ++joined;
        });
      }
    });
  }
  readers.clear();
  CHECK(answered == 0);
  CHECK(f.source.fetches == 1);
  f.source.complete_all();
  CHECK(answered == 400);
  CHECK(joined == 399);
}

TEST_CASE("a reader that joins a prefetch makes it urgent") {
  CacheFixture f({10000}, 1 << 20);
  int answered = 0;
  f.cache->acquire(f.chunk(0), {Priority::Kind::prefetch, 77}, [&](const auto&) { ++answered; });
  CHECK(f.source.raised == 0);
  f.cache->acquire(f.chunk(0), {Priority::Kind::prefetch, 78}, [&](const auto&) { ++answered; });
  CHECK(f.source.raised == 0);
  f.cache->acquire(f.chunk(0), {}, [&](const auto&) { ++answered; });
  CHECK(f.source.raised == 1);
  f.source.complete_all();
  CHECK(answered == 3);
}

TEST_CASE("a prefetch that joins what fills a tier makes it as urgent as itself") {
  CacheFixture f({10000}, 1 << 20);
  int answered = 0;
  f.cache->acquire(f.chunk(0), {Priority::Kind::background, 1}, [&](const auto&) { ++answered; });
  f.cache->acquire(f.chunk(0), {Priority::Kind::background, 2}, [&](const auto&) { ++answered; });
  CHECK(f.source.raised == 0);
  f.cache->acquire(f.chunk(0), {Priority::Kind::prefetch, 77}, [&](const auto&) { ++answered; });
  CHECK(f.source.raised == 1);
  f.source.complete_all();
  CHECK(answered == 3);
}

TEST_CASE("what waits for memory goes by its most urgent use") {
  const size_t fit = TransitShares::for_chunks(kChunk).capacity / kChunk;
  CacheFixture f(std::vector<uint64_t>(fit + 10, kChunk), 0);
  size_t answered = 0;
  for (size_t i = 0; i < fit + 10; ++i)
    f.cache->acquire(f.chunk(i), {Priority::Kind::background, i}, [&](const auto&) { ++answered; });
  REQUIRE(f.source.fetches == fit);
  f.cache->acquire(f.chunk(fit + 8), {Priority::Kind::prefetch, 1}, [&](const auto&) { ++answered; });
  f.cache->acquire(f.chunk(fit + 9), {}, [&](const auto&) { ++answered; });
  CHECK(f.source.complete_until([&] { return answered == fit + 12; }));
  const auto files = f.source.files();
  REQUIRE(files.size() == fit + 10);
  CHECK(files[fit] == f.file(fit + 9));
  CHECK(files[fit + 1] == f.file(fit + 8));
  CHECK(files[fit + 2] == f.file(fit));
}

TEST_CASE("a failed fetch fails all who wait, and the next try fetches again") {
  CacheFixture f({10000}, 1 << 20);
  int failed = 0;
  for (int i = 0; i < 3; ++i) {
    f.cache->acquire(f.chunk(0), {}, [&](const Result<AcquiredChunk>& chunk) {
      if (!chunk && chunk.error().code == EIO) ++failed;
    });
  }
  f.source.complete_one(EIO);
  CHECK(failed == 3);
  CHECK(f.metrics.ram_bytes.value() == 0);
  f.cache->acquire(f.chunk(0), {}, [](const auto&) {});
  CHECK(f.source.fetches == 2);
  f.source.complete_all();
  CHECK(f.cache->tier_of(f.chunk(0)) == Tier::ram);
}

TEST_CASE("a read of which one chunk fails is one error") {
  CacheFixture f({3 * kChunk}, 1 << 20);
  int calls = 0;
  int errors = 0;
  f.cache->read(f.file(0), 0, 3 * kChunk, [&](const Result<ReadView>& view) {
    ++calls;
    errors += view ? 0 : 1;
  });
  f.source.complete_one();
  f.source.complete_one(EIO);
  CHECK(calls == 0);
  f.source.complete_one();
  CHECK(calls == 1);
  CHECK(errors == 1);
}

TEST_CASE("a full RAM tier keeps what it has and passes the rest through") {
  CacheFixture f(std::vector<uint64_t>(10, 8192), 3 * 8192);
  for (int pass = 0; pass < 2; ++pass) {
    for (size_t i = 0; i < 10; ++i) f.read(f.file(i), 0, 8192);
  }
  CHECK(f.metrics.ram_bytes.value() == 3 * 8192);
  CHECK(f.metrics.ram_chunks.value() == 3);
  for (size_t i = 0; i < 10; ++i) CHECK((f.cache->tier_of(f.chunk(i)) == Tier::ram) == (i < 3));
}

TEST_CASE("transit memory is bounded and reused oldest first") {
  const uint64_t transit = TransitShares::for_chunks(kChunk).capacity;
  const size_t files = 2 * transit / kChunk;
  CacheFixture f(std::vector<uint64_t>(files, kChunk), 0);
  for (size_t i = 0; i < files; ++i) {
    CHECK(f.read(f.file(i), 0, kChunk) == Origin::pfs);
    CHECK(f.metrics.transit_bytes.value() <= static_cast<int64_t>(transit));
  }
  CHECK(f.cache->resident(f.chunk(files - 1)));
  CHECK(!f.cache->resident(f.chunk(0)));
}

TEST_CASE("fetches beyond the transit memory wait and all complete") {
  const size_t files = 3 * TransitShares::for_chunks(kChunk).capacity / kChunk;
  CacheFixture f(std::vector<uint64_t>(files, kChunk), 0);
  size_t answered = 0;
  for (size_t i = 0; i < files; ++i) {
    f.cache->acquire(f.chunk(i), {}, [&](const Result<AcquiredChunk>& chunk) { answered += chunk ? 1 : 0; });
  }
  CHECK(f.source.fetches == files / 3);
  CHECK(f.metrics.transit_bytes.value() == static_cast<int64_t>(files / 3 * kChunk));
  CHECK(f.source.complete_until([&] { return answered == files; }));
}

TEST_CASE("a fetch that waits for pinned memory begins when the pin is dropped") {
  const size_t fits = TransitShares::for_chunks(kChunk).capacity / kChunk;
  CacheFixture f(std::vector<uint64_t>(fits + 1, kChunk), 0);
  std::vector<ChunkRef> pins;
  for (size_t i = 0; i < fits; ++i) {
    f.cache->acquire(f.chunk(i), {}, [&](Result<AcquiredChunk> chunk) { pins.push_back(chunk->data); });
  }
  f.source.complete_all();
  REQUIRE(pins.size() == fits);
  std::atomic<bool> answered = false;
  f.cache->acquire(f.chunk(fits), {}, [&](const Result<AcquiredChunk>& chunk) { answered = bool(chunk); });
  CHECK(!f.source.complete_all());
  CHECK(!answered);
  pins.pop_back();
  CHECK(f.source.complete_until([&] { return answered.load(); }));
}

TEST_CASE("pinned chunks in transit are not dropped under a reader") {
  const size_t fits = TransitShares::for_chunks(kChunk).capacity / kChunk;
  CacheFixture f(std::vector<uint64_t>(2 * fits, kChunk), 0);
  ChunkRef pinned;
  f.cache->acquire(f.chunk(0), {}, [&](Result<AcquiredChunk> chunk) { pinned = std::move(chunk->data); });
  f.source.complete_all();
  for (size_t i = 1; i < 2 * fits; ++i) f.read(f.file(i), 0, kChunk);
  const auto* bytes = static_cast<const unsigned char*>(pinned->block.slices(0, kChunk)[0].iov_base);
  CHECK(bytes[12345] == fake_byte(f.file(0), 12345));
}

TEST_CASE("reads that have one of their chunks do not hold the memory that all of them wait for") {
  const size_t fits = TransitShares::for_chunks(kChunk).capacity / kChunk;
  CacheFixture f(std::vector<uint64_t>(fits, 2 * kChunk), 0);
  for (size_t i = 0; i < fits; ++i) f.cache->acquire(f.chunk(i), {}, [](const auto&) {});
  REQUIRE(f.source.fetches == fits);
  size_t right = 0;
  for (size_t i = 0; i < fits; ++i) {
    f.cache->read(f.file(i), kChunk - 100, 200, [&, file = f.file(i)](Result<ReadView> view) {
      std::string bytes;
      if (view) bytes = joined(view->memory);
      bool equal = bytes.size() == 200;
      for (size_t at = 0; at < bytes.size(); ++at)
        equal = equal && static_cast<unsigned char>(bytes[at]) == fake_byte(file, kChunk - 100 + at);
      right += equal ? 1 : 0;
    });
  }
  CHECK(right == 0);
  CHECK(f.source.complete_until([&] { return right == fits; }));
}

// Keeps what it is told on NVMe, and says when it is asked for the chunk that has to make room there.
class SwappingPolicy final : public TierPolicy {
 public:
  TierChoice choose_tier(ChunkId chunk, uint64_t, const TierSpace& space, const Use&) override {
    if (chunk == newcomer) return {Tier::nvme, {victim}};
    return {space.nvme >= kChunk ? Tier::nvme : Tier::none, {}};
  }
  bool would_keep(ChunkId, uint64_t, const TierSpace&, const Use&) const override { return true; }

  ChunkId newcomer{UINT32_MAX};
  ChunkId victim;
};

TEST_CASE("what waits for memory for an NVMe hit and loses it there does not hold up other hits") {
  const size_t fits = TransitShares::for_chunks(kChunk).capacity / kChunk;
  const size_t spared = fits / 8;  // of the transit memory, for NVMe
  const size_t stored = spared + 2;
  FakeStore store(stored * kChunk);
  SwappingPolicy policy;
  CacheFixture f(std::vector<uint64_t>(stored + fits, kChunk), 0, {&store});
  f.cache =
      std::move(*ChunkCache::create({*f.catalog, f.source, {&store}, policy, f.metrics, f.log.logger()}, 0));
  for (size_t i = 0; i < stored; ++i) CHECK(f.read(f.file(i), 0, kChunk) == Origin::pfs);
  std::vector<ChunkRef> pins;
  const auto pin = [&](Result<AcquiredChunk> chunk) { pins.push_back(chunk->data); };
  for (size_t i = 0; i < fits - spared; ++i) f.cache->acquire(f.chunk(stored + i), {}, pin);
  for (size_t i = 2; i < stored; ++i) f.cache->acquire(f.chunk(i), {}, pin);
  store.settle();
  f.source.complete_all();
  REQUIRE(pins.size() == fits);
  std::array<std::atomic<bool>, 3> answered{};
  const auto note = [&](size_t which) {
    return [&answered, which](const Result<AcquiredChunk>& chunk) { answered[which] = bool(chunk); };
  };
  f.cache->acquire(f.chunk(0), {}, note(0));
  f.cache->acquire(f.chunk(1), {}, note(1));
  policy.victim = f.chunk(0);
  policy.newcomer = f.chunk(stored + fits - 1);
  f.cache->acquire(policy.newcomer, {}, note(2));  // drops chunk 0, and waits for memory itself
  REQUIRE(f.cache->tier_of(f.chunk(0)) == Tier::none);
  REQUIRE(!f.source.complete_all());
  REQUIRE((!answered[0] && !answered[1] && !answered[2]));
  pins.pop_back();
  // The others may come first, with the memory of one chunk for all.
  CHECK(f.source.complete_until([&] { return answered[1].load(); }));
  pins.clear();
  CHECK(f.source.complete_until([&] { return answered[0] && answered[2]; }));
}

TEST_CASE("large chunks that no tier keeps are read through by range") {
  TempTree tree;
  tree.write("big", 16 << 20);
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  ScanOptions options;
  options.chunk_size = 4 << 20;
  const auto catalog = *scan_catalog(tree.path(), options, log.logger());
  const auto cache = std::move(*ChunkCache::create({*catalog, source, {}, policy, metrics, log.logger()}, 0));
  const FileId file = *catalog->find("big");
  std::mt19937 random(3);
  uint64_t asked = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t length = 1 + random() % 100000;
    const uint64_t offset = random() % ((16 << 20) - length);
    asked += length;
    int answered = 0;
    cache->read(file, offset, length, [&](const Result<ReadView>& view) {
      ++answered;
      REQUIRE(view);
      uint64_t at = offset;
      for (const iovec& part : view->memory) {
        const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
        CHECK(bytes[0] == fake_byte(file, at));
        CHECK(bytes[part.iov_len - 1] == fake_byte(file, at + part.iov_len - 1));
        at += part.iov_len;
      }
      CHECK(at == offset + length);
    });
    source.complete_all();
    CHECK(answered == 1);
  }
  CHECK(source.bytes == asked);
  CHECK(cache->stop(1min));
}

TEST_CASE("after stop() nothing is fetched, and what waited is answered") {
  CacheFixture f({10000, 10000}, 1 << 20);
  int cancelled = 0;
  const auto count = [&](const Result<AcquiredChunk>& chunk) {
    if (!chunk && chunk.error().code == ECANCELED) ++cancelled;
  };
  f.cache->acquire(f.chunk(0), {}, count);
  CHECK(f.cache->stop(1min));
  CHECK(cancelled == 1);
  f.cache->acquire(f.chunk(1), {}, count);
  CHECK(cancelled == 2);
}

TEST_CASE("what has been read when stop() is called is still written to NVMe") {
  FakeStore store(1 << 20);
  CacheFixture f({10000, 10000}, 0, {&store});
  std::jthread stopping;
  // Between the answer and the write: stop() has begun when nothing is fetched any more.
  f.cache->acquire(f.chunk(0), {}, [&](const Result<AcquiredChunk>& chunk) {
    CHECK(chunk);
    stopping = std::jthread([&] { CHECK(f.cache->stop(1min)); });
    const auto refused = std::make_shared<std::atomic<bool>>(false);
    while (!*refused) {
      f.cache->acquire(f.chunk(1), {}, [refused](const auto& other) { *refused = !other; });
      std::this_thread::yield();
    }
  });
  f.source.complete_all();
  stopping.join();
  CHECK(store.chunks() == 1);
}

TEST_CASE("random reads from several threads see the right bytes with any memory") {
  const uint64_t ram = GENERATE(0, 1 << 20, 64 << 20);
  std::vector<uint64_t> sizes;
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) sizes.push_back(1 + random() % (3 * kChunk));
  CacheFixture f(sizes, ram);
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> answered{0};
  std::vector<std::jthread> readers;
  for (unsigned t = 0; t < 4; ++t) {
    readers.emplace_back([&, t] {
      std::mt19937 r(t);
      for (int i = 0; i < 2000; ++i) {
        const FileId file = f.file(r() % sizes.size());
        const uint64_t size = f.catalog->stamp(file).size;
        const uint64_t offset = r() % size;
        const uint64_t length = 1 + r() % (size - offset);
        // By value: another thread may complete it later.
        f.cache->read(file, offset, length,
                      [&wrong, &answered, file, offset, length](const Result<ReadView>& view) {
                        ++answered;
                        if (!view) return void(++wrong);
                        uint64_t at = offset;
                        for (const iovec& part : view->memory) {
                          const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
                          if (bytes[0] != fake_byte(file, at)) ++wrong;
                          at += part.iov_len;
                        }
                        if (at != offset + length) ++wrong;
                      });
      }
    });
  }
  CHECK(f.source.complete_until([&] { return answered == 4 * 2000; }));
  readers.clear();
  CHECK(wrong == 0);
  CHECK(f.metrics.ram_bytes.value() <= static_cast<int64_t>(ram));
}

// Notes the uses that it is told of. Thread-safe: what waits for memory is placed by a thread of the cache.
class NotingPolicy final : public TierPolicy {
 public:
  using Noted = std::map<ChunkId, uint64_t>;  // the last position that each chunk came with

  TierChoice choose_tier(ChunkId chunk, uint64_t, const TierSpace&, const Use& served) override {
    MutexLock lock(mutex_);
    placed_[chunk] = served.position;
    ++looks_[chunk];
    return {};
  }
  bool would_keep(ChunkId chunk, uint64_t, const TierSpace&, const Use& served) const override {
    MutexLock lock(mutex_);
    asked_[chunk] = served.position;
    return true;
  }

  Noted placed() const {
    MutexLock lock(mutex_);
    return placed_;
  }
  Noted asked() const {
    MutexLock lock(mutex_);
    return asked_;
  }
  /// How often a chunk has been placed.
  int looks(ChunkId chunk) const {
    MutexLock lock(mutex_);
    const auto found = looks_.find(chunk);
    return found == looks_.end() ? 0 : found->second;
  }

 private:
  mutable Mutex mutex_;
  Noted placed_ GUARDED_BY(mutex_);
  mutable Noted asked_ GUARDED_BY(mutex_);
  std::map<ChunkId, int> looks_ GUARDED_BY(mutex_);
};

TEST_CASE("the policy is told which use a fetch is for, by whoever names one first") {
  const size_t fits = TransitShares::for_chunks(kChunk).capacity / kChunk;
  NotingPolicy noting;
  CacheFixture f(std::vector<uint64_t>(fits + 2, kChunk), 0);
  f.cache = std::move(*ChunkCache::create({*f.catalog, f.source, {}, noting, f.metrics, f.log.logger()}, 0));
  const OrderId order(1);
  const auto ignore = [](const auto&) {};
  f.cache->acquire(f.chunk(0), Priority{}, ignore, {order, 10});
  f.cache->acquire_range(f.file(1), 0, 100, Priority{}, ignore, {order, 11});
  f.cache->read(f.file(2), 0, kChunk, ignore, {order, 12});
  CHECK(noting.asked() == NotingPolicy::Noted{{f.chunk(1), 11}});
  CHECK(noting.placed() == NotingPolicy::Noted{{f.chunk(0), 10}, {f.chunk(1), 11}, {f.chunk(2), 12}});
  // One that waits for memory is placed again as it begins: by then it may be known what it is for.
  for (size_t i = 3; i < fits; ++i) f.cache->acquire(f.chunk(i), Priority{}, ignore);
  bool answered = false;
  f.cache->acquire(f.chunk(fits), Priority{}, [&](const auto&) { answered = true; });
  CHECK(noting.placed().at(f.chunk(fits)) == 0);
  // The thread "transit" goes on with its look at the fetch if memory comes free meanwhile. Another fetch
  // that waits has it look anew, which it does after it found no memory for the look before.
  REQUIRE(eventually([&] { return noting.looks(f.chunk(fits)) == 2; }));
  f.cache->acquire(f.chunk(fits), Priority{}, ignore, {order, 13});
  f.cache->acquire(f.chunk(fits), Priority{}, ignore, {order, 14});
  f.cache->acquire(f.chunk(fits + 1), Priority{}, ignore);
  REQUIRE(eventually([&] { return noting.looks(f.chunk(fits)) == 3; }));
  REQUIRE(f.source.complete_until([&] { return answered; }));
  CHECK(noting.placed().at(f.chunk(fits)) == 13);
}
