#include "cache/chunks/ram_backup.h"

#include <functional>
#include <future>

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
using Outcome = RamBackup::Outcome;

namespace {

constexpr uint32_t kBackupChunk = 64 << 10;

/// First touch, until the test wants a chunk to leave RAM for the next one.
struct ScriptedPolicy final : TierPolicy {
  TierChoice choose_tier(ChunkId, uint64_t length, const TierSpace& space, const Use&) override {
    if (victim) return {Tier::ram, {*std::exchange(victim, std::nullopt)}};
    return {FirstTouchPolicy::tier(length, space), {}};
  }
  bool would_keep(ChunkId, uint64_t length, const TierSpace& space, const Use&) const override {
    return victim || FirstTouchPolicy::tier(length, space) != Tier::none;
  }
  bool belongs_in_ram(ChunkId) const override { return belongs; }
  void kept(ChunkId chunk, Tier tier) override {
    told.push_back({chunk, tier});
    if (tier == Tier::ram && then) std::exchange(then, nullptr)();
  }

  std::optional<ChunkId> victim;
  bool belongs = false;
  std::vector<std::pair<ChunkId, Tier>> told;
  std::function<void()> then;  // once, when it is told that RAM has a chunk
};

/// Files of one chunk each behind a RAM tier and stores that are counted in chunks.
struct BackupFixture {
  BackupFixture(size_t files, uint64_t ram, std::vector<uint64_t> capacities) {
    for (size_t i = 0; i < files; ++i) tree.write("f" + std::to_string(1000 + i), kBackupChunk);
    for (const uint64_t capacity : capacities) {
      stores.push_back(std::make_unique<FakeStore>(capacity * kBackupChunk));
    }
    ScanOptions options;
    options.chunk_size = kBackupChunk;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    mount(ram);
  }
  ~BackupFixture() { CHECK(cache->stop(1min)); }

  void mount(uint64_t ram) {
    if (cache) CHECK(cache->stop(1min));
    std::vector<NvmeStore*> all;
    for (const auto& one : stores) all.push_back(one.get());
    cache.reset();
    source.emplace();  // stop() ends one for good
    cache = std::move(
        *ChunkCache::create({*catalog, *source, all, policy, metrics, log.logger()}, ram * kBackupChunk));
  }
  ChunkId chunk(size_t i) const {
    return catalog->chunks(*catalog->find("f" + std::to_string(1000 + i))).first;
  }
  std::optional<Origin> read(size_t i) {
    std::optional<Origin> origin;
    cache->acquire(chunk(i), Priority{}, [&](const Result<AcquiredChunk>& result) {
      if (!result) return;
      origin = result->origin;
      bool equal = true;
      uint64_t at = 0;
      for (const iovec& part : result->data->block.slices(0, kBackupChunk)) {
        const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
        for (size_t b = 0; b < part.iov_len; ++b) equal = equal && bytes[b] == fake_byte(file(i), at++);
      }
      CHECK(equal);
    });
    settle();
    return origin;
  }
  /// What is under way, and what begins because of it, comes to its end.
  void settle() {
    bool busy = true;
    while (busy) {
      busy = source->complete_all();
      for (const auto& one : stores) busy = one->settle() || busy;
    }
  }
  FileId file(size_t i) const { return *catalog->find("f" + std::to_string(1000 + i)); }
  void read_range(size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) read(i);
  }
  Tier tier(size_t i) const { return cache->tier_of(chunk(i)); }
  size_t copy_all() {
    size_t copied = 0;
    for (; cache->ram_backup().copy_next() == Outcome::copied; ++copied) settle();
    return copied;
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  ScriptedPolicy policy;
  std::optional<FakeSource> source;
  std::vector<std::unique_ptr<FakeStore>> stores;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;
};

}  // namespace

TEST_CASE("after a restart what the RAM tier held comes from NVMe") {
  BackupFixture f(6, 4, {100});
  f.read_range(0, 6);
  CHECK(f.copy_all() == 4);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
  CHECK(f.stores[0]->chunks() == 6);
  CHECK(f.metrics.nvme_copies.value() == 4);
  CHECK(f.metrics.nvme_copy_bytes.value() == 4 * kBackupChunk);
  CHECK(f.metrics.nvme_warm_bytes.value() == 0);
  f.mount(4);
  CHECK(f.metrics.nvme_warm_bytes.value() == 6 * kBackupChunk);
  CHECK(f.metrics.nvme_copies.value() == 0);
  for (size_t i = 0; i < 6; ++i) CHECK(f.read(i) == Origin::nvme);
  CHECK(f.source->fetches == 0);
}

TEST_CASE("policies hear nothing of copies, and the room of copies is free to them") {
  BackupFixture f(6, 4, {5});
  f.read_range(0, 4);
  const size_t told = f.policy.told.size();
  CHECK(f.copy_all() == 4);
  CHECK(f.policy.told.size() == told);
  CHECK(f.stores[0]->available() == kBackupChunk);
  CHECK(f.cache->space().nvme == 5 * kBackupChunk);
  CHECK(f.tier(0) == Tier::ram);
}

TEST_CASE("a copy has its store grow for a chunk more, which may be written at that moment") {
  BackupFixture f(2, 1, {4});
  f.read_range(0, 2);
  REQUIRE(f.tier(1) == Tier::nvme);
  CHECK(f.stores[0]->grown_for() == 0);
  CHECK(f.copy_all() == 1);
  CHECK(f.stores[0]->grown_for() == 2 * kBackupChunk);
}

TEST_CASE("a chunk that is nowhere else takes the place of a copy") {
  BackupFixture f(12, 4, {6});
  f.read_range(0, 4);
  CHECK(f.copy_all() == 4);
  f.read_range(4, 8);
  CHECK(f.stores[0]->chunks() == 6);
  CHECK(f.metrics.nvme_copies.value() == 2);
  f.read_range(8, 12);  // NVMe takes two of them, and the rest is passed on
  CHECK(f.metrics.nvme_copies.value() == 0);
  for (size_t i = 0; i < 10; ++i) CHECK(f.tier(i) == (i < 4 ? Tier::ram : Tier::nvme));
  CHECK(f.tier(10) == Tier::none);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::full);
  CHECK(f.metrics.nvme_evictions.value() == 0);
}

TEST_CASE("a copy that had to go is made again when there is room") {
  BackupFixture f(3, 2, {2});
  f.read_range(0, 2);
  CHECK(f.copy_all() == 2);
  f.read(2);
  CHECK(f.metrics.nvme_copies.value() == 1);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::full);
  f.stores[0]->drop(chunk_key(*f.catalog, f.chunk(2)));
  CHECK(f.copy_all() == 1);
  CHECK(f.metrics.nvme_copies.value() == 2);
}

TEST_CASE("a chunk that leaves RAM stays on NVMe without a write") {
  BackupFixture f(3, 2, {100});
  f.read_range(0, 2);
  CHECK(f.copy_all() == 2);
  f.policy.victim = f.chunk(0);
  f.read(2);
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.tier(2) == Tier::ram);
  CHECK(f.policy.told.back() == std::pair(f.chunk(2), Tier::ram));
  CHECK(f.policy.told[f.policy.told.size() - 2] == std::pair(f.chunk(0), Tier::nvme));
  CHECK(f.metrics.nvme_copies.value() == 1);
  CHECK(f.cache->space().nvme == 99 * kBackupChunk);
  CHECK(f.read(0) == Origin::nvme);
}

TEST_CASE("a chunk that leaves RAM while it is copied is an ordinary one on NVMe") {
  BackupFixture f(3, 1, {100});
  f.read(0);
  f.stores[0]->set_slow(true);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::copied);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
  CHECK(!f.cache->ram_backup().stopped());
  f.policy.victim = f.chunk(0);
  f.read(1);
  CHECK(f.tier(0) == Tier::none);
  f.stores[0]->set_slow(false);
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.metrics.nvme_copies.value() == 0);
  CHECK(f.read(0) == Origin::nvme);
  CHECK(f.copy_all() == 1);
}

TEST_CASE("a chunk that is written to another store before its copy is there stays in one of them") {
  BackupFixture f(2, 1, {1, 1});
  f.read(0);
  f.stores[0]->set_slow(true);
  REQUIRE(f.cache->ram_backup().copy_next() == Outcome::copied);
  f.policy.victim = f.chunk(0);
  f.read(1);
  f.read(0);
  REQUIRE(f.stores[1]->chunks() == 1);
  f.stores[0]->set_slow(false);
  CHECK(f.stores[0]->chunks() + f.stores[1]->chunks() == 1);
  CHECK(f.tier(0) == Tier::nvme);
  f.cache->evict(f.chunk(0));
  CHECK(f.stores[0]->chunks() + f.stores[1]->chunks() == 0);
}

TEST_CASE("a chunk that has left RAM before its turn is passed over") {
  BackupFixture f(3, 1, {100});
  f.read(0);
  f.policy.victim = f.chunk(0);
  f.read(1);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::skipped);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::copied);
  f.settle();
  CHECK(f.tier(0) == Tier::none);
  CHECK(f.stores[0]->chunks() == 1);
}

TEST_CASE("room that a fetch under way will need is left to it") {
  BackupFixture f(2, 1, {1});
  const auto ask = [&](size_t i) {
    f.cache->acquire(f.chunk(i), Priority{}, [](const Result<AcquiredChunk>& result) { CHECK(result); });
  };
  ask(0);
  f.settle();
  ask(1);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::busy);
  f.settle();
  CHECK(f.tier(1) == Tier::nvme);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::full);
}

TEST_CASE("room that a fetch is promised while a copy is prepared is left to it") {
  BackupFixture f(2, 1, {1});
  f.read(0);
  f.stores[0]->set_slow(true);
  f.stores[0]->set_meanwhile([&] { f.cache->acquire(f.chunk(1), Priority{}, [](const auto&) {}); });
  CHECK(f.cache->ram_backup().copy_next() == Outcome::busy);
  f.settle();
  f.stores[0]->set_slow(false);
  CHECK(f.tier(1) == Tier::nvme);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("a copy that cannot be written is not tried again, and changes nothing") {
  BackupFixture f(2, 2, {100});
  f.read_range(0, 2);
  f.stores[0]->set_failing(true);
  CHECK(f.copy_all() == 2);
  CHECK(f.metrics.nvme_copies.value() == 0);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
  CHECK(f.cache->space().nvme == 100 * kBackupChunk);
  CHECK(f.read(0) == Origin::ram);
}

TEST_CASE("what moves up from NVMe is a copy there from then on") {
  BackupFixture f(3, 0, {3});
  f.read_range(0, 3);
  f.mount(3);
  for (size_t i = 0; i < 3; ++i) CHECK(f.read(i) == Origin::nvme);
  for (size_t i = 0; i < 3; ++i) CHECK(f.tier(i) == Tier::ram);
  CHECK(f.metrics.nvme_copies.value() == 3);
  CHECK(f.cache->space().nvme == 3 * kBackupChunk);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
}

TEST_CASE("a chunk that moves up from NVMe and has to leave RAM at once is on NVMe again") {
  BackupFixture f(2, 0, {2});
  f.read(0);
  f.mount(2);
  std::future<void> other;
  f.policy.then = [&] {
    f.policy.victim = f.chunk(0);
    other =
        std::async(std::launch::async, [&] { f.cache->acquire(f.chunk(1), Priority{}, [](const auto&) {}); });
    (void)other.wait_for(50ms);  // in which it would be done, if it did not have to wait
  };
  CHECK(f.read(0) == Origin::nvme);
  REQUIRE(other.valid());
  other.get();
  f.settle();
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.tier(1) == Tier::ram);
  CHECK(f.metrics.nvme_copies.value() == 0);
}

TEST_CASE("after a restart RAM is filled from NVMe when all chunks are there") {
  BackupFixture f(6, 4, {100});
  f.read_range(0, 6);
  f.copy_all();
  f.mount(4);
  const size_t told = f.policy.told.size();
  for (int time = 0; time < 2; ++time) f.read_range(0, 6);
  for (size_t i = 0; i < 6; ++i) CHECK(f.tier(i) == (i < 4 ? Tier::ram : Tier::nvme));
  CHECK(f.policy.told.size() == told + 4);
  CHECK(f.metrics.nvme_copies.value() == 4);
  CHECK(f.cache->space().nvme == 98 * kBackupChunk);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
}

TEST_CASE("after a restart RAM is left to chunks of the source while some are missing") {
  BackupFixture f(6, 4, {5});
  f.read_range(0, 5);
  f.copy_all();
  f.mount(2);
  f.read(4);
  CHECK(f.tier(4) == Tier::nvme);
  f.read(5);
  CHECK(f.tier(5) == Tier::ram);
  f.read(3);  // now it would take no other chunk's place
  CHECK(f.tier(3) == Tier::ram);
}

TEST_CASE("after a restart what belongs in RAM goes there at once") {
  BackupFixture f(6, 0, {4});
  f.read_range(0, 4);
  f.mount(2);
  f.policy.belongs = true;
  f.read(0);
  CHECK(f.tier(0) == Tier::ram);
  CHECK(f.cache->space().nvme == kBackupChunk);
  f.read_range(1, 4);
  CHECK(f.tier(3) == Tier::nvme);
}

TEST_CASE("several stores") {
  BackupFixture f(12, 6, {4, 3});
  f.read_range(0, 6);
  CHECK(f.copy_all() == 6);
  CHECK(f.stores[0]->available() == 0);
  CHECK(f.stores[1]->available() == kBackupChunk);
  f.read_range(6, 12);
  CHECK(f.metrics.nvme_copies.value() <= 1);
  for (size_t i = 6; i < 12; ++i) CHECK(f.tier(i) == Tier::nvme);
}

TEST_CASE("without an NVMe tier there are no copies") {
  BackupFixture f(2, 2, {});
  f.read_range(0, 2);
  f.cache->ram_backup().start();
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
  CHECK(f.cache->ram_backup().flush(1h));
  CHECK(f.cache->ram_backup().stopped());
}

TEST_CASE("the end copies what still waits") {
  BackupFixture f(20, 20, {20});
  f.cache->ram_backup().start();
  f.read_range(0, 20);
  CHECK(f.cache->ram_backup().flush(1h));
  CHECK(f.stores[0]->chunks() == 20);
  CHECK(f.metrics.nvme_copies.value() == 20);
}

TEST_CASE("the end waits for a store that hangs no longer than it is told to") {
  BackupFixture f(4, 4, {20});
  f.stores[0]->set_slow(true);
  f.cache->ram_backup().start();
  f.read_range(0, 4);
  REQUIRE(f.stores[0]->await_held(1));
  CHECK(!f.cache->ram_backup().flush(1ms));
  CHECK(!f.cache->stop(1ms));
  f.stores[0]->set_slow(false);
  CHECK(f.cache->stop(1h));
  CHECK(f.stores[0]->chunks() <= 1);
  CHECK(f.cache->ram_backup().copy_next() == Outcome::nothing);
}

TEST_CASE("copies are made at once while the stores are idle, and seldom while they are not") {
  const TimePoint start{1h};
  BackupPace pace;
  CHECK(pace.wait(start, 0, 0) == 0ms);
  pace.copied(start, start + 2ms);
  CHECK(pace.wait(start + 2ms, 0, 0) == 0ms);
  CHECK(pace.wait(start + 2ms, 1, 1) > 0ms);  // a transfer has begun
  CHECK(pace.wait(start + 5ms, 1, 0) > 0ms);  // it has ended just now
  CHECK(pace.wait(start + 20ms, 1, 0) == 0ms);
  // Never idle for long enough: a pause many times as long as the last copy took.
  TimePoint now = start + 20ms;
  pace.copied(now, now + 2ms);
  now += 2ms;
  uint64_t begun = 1;
  Duration waited{};
  for (; pace.wait(now, begun, 1) > 0ms; ++begun) {
    now += 1ms;
    waited += 1ms;
  }
  CHECK(waited >= 20 * 2ms);
  CHECK(waited <= 100 * 2ms);
}

TEST_CASE("a copy that is owed waits for no other transfer") {
  BackupPace pace;
  const TimePoint start{1h};
  pace.copied(start, start + 2ms);
  CHECK(pace.wait(start + 2ms, 1, 1) > 0ms);
  CHECK(pace.wait(start + 2ms, 1, 1, true) == 0ms);
}
