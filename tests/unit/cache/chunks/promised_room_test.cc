// Room that one chunk is to have goes to no other.
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

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

constexpr uint32_t kRoomChunk = 64 << 10;

/// First touch; but for the newcomer, the victim makes room in RAM.
class DroppingPolicy final : public TierPolicy {
 public:
  TierChoice choose_tier(ChunkId chunk, uint64_t length, const TierSpace& space, const Use&) override {
    if (chunk == newcomer) return {Tier::ram, {victim}};
    return {FirstTouchPolicy::tier(length, space), {}};
  }
  bool would_keep(ChunkId, uint64_t length, const TierSpace& space, const Use&) const override {
    return FirstTouchPolicy::tier(length, space) != Tier::none;
  }

  void kept(ChunkId chunk, Tier tier) override {
    if (chunk == awaited && tier == Tier::ram) then();
  }

  ChunkId newcomer{UINT32_MAX};
  ChunkId victim{UINT32_MAX};
  ChunkId awaited{UINT32_MAX};
  std::function<void()> then;  // as soon as the awaited chunk is in RAM
};

/// Files of one chunk each behind a RAM tier and a store, both counted in chunks.
struct RoomFixture {
  /// `sizes`: of the first files; the others are of whole chunks.
  RoomFixture(size_t files, uint64_t ram, uint64_t nvme, std::vector<size_t> sizes = {})
      : store(nvme * kRoomChunk) {
    sizes.resize(files, kRoomChunk);
    for (size_t i = 0; i < files; ++i) tree.write("f" + std::to_string(i), sizes[i]);
    ScanOptions options;
    options.chunk_size = kRoomChunk;
    catalog = *scan_catalog(tree.path(), options, log.logger());
    cache = std::move(
        *ChunkCache::create({*catalog, source, {&store}, policy, metrics, log.logger()}, ram * kRoomChunk));
  }
  ~RoomFixture() { CHECK(cache->stop(1min)); }

  ChunkId chunk(size_t i) const { return catalog->chunks(*catalog->find("f" + std::to_string(i))).first; }
  Tier tier(size_t i) const { return cache->tier_of(chunk(i)); }
  void ask_for(size_t i) {
    cache->acquire(chunk(i), Priority{}, [](const auto&) {});
  }
  void complete_all() {
    do source.complete_all();
    while (store.settle());
  }

  TempTree tree;
  CapturedLog log;
  Metrics metrics;
  DroppingPolicy policy;
  FakeSource source;
  FakeStore store;
  std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<ChunkCache> cache;
};

}  // namespace

TEST_CASE("room in RAM that a reader still pins when it is promised goes to no other chunk") {
  RoomFixture f(3, 1, 0);
  ChunkRef pin;
  f.cache->acquire(f.chunk(0), Priority{}, [&](const Result<AcquiredChunk>& chunk) { pin = chunk->data; });
  REQUIRE(f.source.complete_one());
  REQUIRE(f.tier(0) == Tier::ram);
  f.policy.victim = f.chunk(0);
  f.policy.newcomer = f.chunk(1);
  f.ask_for(1);
  pin = ChunkRef();
  f.ask_for(2);
  f.complete_all();
  CHECK(f.tier(1) == Tier::ram);
  CHECK(f.tier(2) == Tier::none);
}

TEST_CASE("room that was promised to a chunk that did not come is there for the next one") {
  RoomFixture f(5, 1, 1);
  ChunkRef pin;
  f.cache->acquire(f.chunk(0), Priority{}, [&](const Result<AcquiredChunk>& chunk) { pin = chunk->data; });
  REQUIRE(f.source.complete_one());
  f.policy.victim = f.chunk(0);
  f.policy.newcomer = f.chunk(1);
  f.ask_for(1);
  pin = ChunkRef();
  f.ask_for(2);  // to NVMe, whose room is then promised, too
  REQUIRE(f.cache->space().ram == 0);
  REQUIRE(f.cache->space().nvme == 0);
  CHECK(f.source.complete_all(EIO));
  CHECK(f.cache->space().ram == kRoomChunk);
  CHECK(f.cache->space().nvme == kRoomChunk);
  f.ask_for(3);
  f.ask_for(4);
  f.complete_all();
  CHECK(f.tier(3) == Tier::ram);
  CHECK(f.tier(4) == Tier::nvme);
}

TEST_CASE("two chunks that are placed at the same time do not count on the same room") {
  RoomFixture f(2, 0, 1);
  std::future<void> other;
  f.store.set_meanwhile([&] {
    other = std::async(std::launch::async, [&] { f.ask_for(1); });
    (void)other.wait_for(50ms);  // in which it would be done, if it did not have to await its turn
  });
  f.ask_for(0);
  REQUIRE(other.valid());
  other.get();
  f.complete_all();
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.tier(1) == Tier::none);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("chunks that are placed at the same time and fit RAM exactly all stay there") {
  constexpr size_t kFiles = 8;
  constexpr size_t kThreads = 4;
  RoomFixture f(kFiles, kFiles, 0);
  for (int round = 0; round < 100; ++round) {
    std::vector<std::jthread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&f, t] {
        for (size_t i = t; i < kFiles; i += kThreads) f.ask_for(i);
      });
    }
    threads.clear();
    f.complete_all();
    for (size_t i = 0; i < kFiles; ++i) {
      REQUIRE(f.tier(i) == Tier::ram);
      f.cache->evict(f.chunk(i));
    }
  }
}

TEST_CASE("room of a chunk that waits for the disk is not taken for a copy") {
  const size_t most = TransitShares::for_chunks(kRoomChunk).nvme_writes / kRoomChunk;
  RoomFixture f(most + 2, 1, most + 1);
  f.store.set_slow(true);
  for (size_t i = 0; i < most + 2; ++i) {
    f.ask_for(i);
    f.complete_all();
  }
  REQUIRE(f.tier(0) == Tier::ram);
  REQUIRE(f.store.held() == most);  // one waits, for which there is room
  REQUIRE(f.store.available() == kRoomChunk);
  CHECK(f.cache->ram_backup().copy_next() == RamBackup::Outcome::busy);
  f.store.set_slow(false);
  CHECK(f.tier(most + 1) == Tier::nvme);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
  CHECK(f.cache->ram_backup().copy_next() == RamBackup::Outcome::full);
}

TEST_CASE("a copy and a chunk that is placed at the same time do not count on the same room") {
  RoomFixture f(2, 1, 1);
  f.ask_for(0);
  f.complete_all();
  f.store.set_slow(true);
  std::future<void> other;
  // The copy looks for room twice, and takes what it finds the second time.
  f.store.set_meanwhile([&] {
    f.store.set_meanwhile([&] {
      other = std::async(std::launch::async, [&] { f.ask_for(1); });
      (void)other.wait_for(50ms);  // in which it would be done, if it did not have to await its turn
    });
  });
  CHECK(f.cache->ram_backup().copy_next() == RamBackup::Outcome::copied);
  REQUIRE(other.valid());
  other.get();
  f.complete_all();
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
  f.store.set_slow(false);
  CHECK(f.tier(1) == Tier::none);
  CHECK(f.metrics.nvme_copies.value() == 1);
}

TEST_CASE("two writes to NVMe do not take the room of the same copy") {
  RoomFixture f(4, 2, 2);
  f.ask_for(0);
  f.ask_for(1);
  f.complete_all();
  while (f.cache->ram_backup().copy_next() == RamBackup::Outcome::copied) f.store.settle();
  REQUIRE(f.store.available() == 0);
  f.ask_for(2);
  f.ask_for(3);
  bool meanwhile = false;
  f.store.set_meanwhile([&] { meanwhile = f.source.complete_one(); });
  REQUIRE(f.source.complete_one());
  CHECK(meanwhile);
  f.complete_all();
  CHECK(f.tier(2) == Tier::nvme);
  CHECK(f.tier(3) == Tier::nvme);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("a copy does not stay on NVMe in the room of a chunk that is on its way there") {
  RoomFixture f(3, 1, 1);
  f.ask_for(0);
  f.complete_all();
  REQUIRE(f.cache->ram_backup().copy_next() == RamBackup::Outcome::copied);
  f.store.settle();
  f.ask_for(1);  // to NVMe, in the place of the copy
  REQUIRE(f.cache->space().nvme == 0);
  f.policy.victim = f.chunk(0);
  f.policy.newcomer = f.chunk(2);
  f.ask_for(2);
  CHECK(f.tier(0) == Tier::none);
  CHECK(f.store.chunks() == 0);
  f.complete_all();
  CHECK(f.tier(1) == Tier::nvme);
  CHECK(f.tier(2) == Tier::ram);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}

TEST_CASE("a chunk that goes to RAM instead of NVMe keeps no room there, which the next copy would lack") {
  constexpr size_t kRam = 4;
  const size_t most = TransitShares::for_chunks(kRoomChunk).nvme_writes / kRoomChunk;
  const size_t swapped = kRam + most;
  const size_t newcomer = swapped + 1;
  RoomFixture f(newcomer + 1, kRam, most + 2);
  const auto bring = [&](size_t from, size_t to) {
    for (size_t i = from; i < to; ++i) {
      f.ask_for(i);
      f.complete_all();
    }
  };
  bring(0, kRam);
  for (int copies = 0; copies < 2; ++copies) {
    REQUIRE(f.cache->ram_backup().copy_next() == RamBackup::Outcome::copied);
    f.store.settle();
  }
  f.store.set_slow(true);
  bring(kRam, swapped);
  REQUIRE(f.store.held() == most);
  REQUIRE(f.store.available() == 0);
  f.policy.victim = f.chunk(1);
  f.policy.newcomer = f.chunk(newcomer);
  f.policy.awaited = f.chunk(swapped);
  f.policy.then = [&] { f.ask_for(newcomer); };
  bring(swapped, newcomer);
  CHECK(f.tier(swapped) == Tier::ram);
  CHECK(f.tier(newcomer) == Tier::ram);
  CHECK(f.tier(0) == Tier::nvme);
  CHECK(f.tier(1) == Tier::nvme);
  f.store.set_slow(false);
}

TEST_CASE("copies that make too little place in RAM stay there, and a chunk keeps its room on NVMe") {
  const size_t most = TransitShares::for_chunks(kRoomChunk).nvme_writes / kRoomChunk;
  const size_t last = most + 2;
  RoomFixture f(last + 1, 1, most + 1, {4 << 10, 8 << 10});
  const auto bring = [&f](size_t i) {
    f.ask_for(i);
    f.complete_all();
  };
  bring(0);
  bring(1);
  REQUIRE(f.cache->ram_backup().copy_next() == RamBackup::Outcome::copied);
  f.store.settle();
  f.store.set_slow(true);
  for (size_t i = 2; i < last; ++i) bring(i);
  REQUIRE(f.store.held() == most);
  REQUIRE(f.cache->space().nvme_behind);
  bring(last);
  CHECK(f.tier(0) == Tier::ram);
  CHECK(f.metrics.nvme_copies.value() == 1);
  f.store.set_slow(false);
  CHECK(f.tier(last) == Tier::nvme);
  CHECK(f.metrics.nvme_writes_skipped.value() == 0);
}
