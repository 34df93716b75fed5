#include "plan/retention/home_prefill.h"

#include <algorithm>
#include <optional>

#include "plan/retention/placement_policy.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/made_up_job.h"
#include "tests/unit/cache/nvme/nvme_support.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// Remembers what was asked for, in order, and how urgently.
class Recorder final : public ChunkSource {
 public:
  void start(FetchRequest request) override {
    {
      MutexLock lock(mutex_);
      asked_.emplace_back(request.file, request.demand->now());
    }
    inner.start(std::move(request));
  }
  void demand_changed(const Demand& demand) override { inner.demand_changed(demand); }
  void stop() override { inner.stop(); }

  std::vector<std::pair<FileId, Priority>> asked() {
    MutexLock lock(mutex_);
    return asked_;
  }

  FakeSource inner;

 private:
  Mutex mutex_;
  std::vector<std::pair<FileId, Priority>> asked_ GUARDED_BY(mutex_);
};

constexpr uint32_t kNodes = 3;
constexpr uint32_t kChunk = 1 << 20;
constexpr uint64_t kPlenty = 1ULL << 30;

/// Node 1 of a job over equal files, one chunk each.
struct PrefillFixture {
  PrefillFixture(uint32_t files, uint64_t size, NodeCapacity capacity, uint64_t nvme = 0)
      : job(std::vector<uint64_t>(files, size), kChunk, kNodes, 3, "seed=1 batch=2"),
        placement(make_placement(capacity)),
        single(*job.catalog),
        policy(*job.catalog, single) {
    std::vector<NvmeStore*> parts;
    if (nvme > 0) {
      stores.capacity = nvme;
      parts.push_back(&stores.open(SegmentLayout()));
    }
    cache = std::move(*ChunkCache::create({*job.catalog, source, parts, policy, stores.metrics, log.logger()},
                                          capacity.ram));
    policy.set_placement(placement, NodeId(1));
    prefill.emplace(*cache, *job.catalog);
  }
  ~PrefillFixture() { CHECK(cache->stop(1min)); }

  std::shared_ptr<const PlacementMap> make_placement(NodeCapacity capacity) const {
    return std::make_shared<const PlacementMap>(
        PlacementMap::make(*job.catalog, job.uses(), std::vector<NodeCapacity>(kNodes, capacity)));
  }
  void use(const std::shared_ptr<const PlacementMap>& given) {
    policy.set_placement(given, NodeId(1));
    prefill->set_placement(given, NodeId(1));
  }
  std::vector<FileId> files_of(const std::vector<ChunkId>& chunks) const {
    std::vector<FileId> files;
    for (const ChunkId chunk : chunks) files.push_back(job.catalog->range(chunk).file);
    return files;
  }
  std::vector<FileId> asked() {
    std::vector<FileId> files;
    for (const auto& entry : source.asked()) files.push_back(entry.first);
    return files;
  }
  /// Gives it its turns, at one time, until it has nothing to do; true if there are so many fetches then.
  bool holds_at(size_t fetches) {
    turn = {true, {}};
    while (turn.busy || prefill->alarm().answer()) turn = prefill->step(now);
    return source.inner.pending() == fetches;
  }
  /// Has the source answer in between, and lets time pass where it waits for something else.
  bool finished() {
    return eventually([this] {
      for (;;) {
        holds_at(0);
        if (!source.inner.complete_all() && !turn.look_again) break;
        now += turn.look_again.value_or(Duration::zero());
        if (turn.look_again && cache->writes_are_behind()) break;  // those are the disk's
      }
      return prefill->progress().finished;
    });
  }

  MadeUpJob job;
  std::shared_ptr<const PlacementMap> placement;
  CapturedLog log;
  testing::StoreFixture stores{IoKind::threads};
  Recorder source;
  NextUsePolicy single;
  PlacementPolicy policy;
  std::unique_ptr<ChunkCache> cache;
  std::optional<HomePrefill> prefill;
  TimePoint now{1h};
  Turn turn;
};

}  // namespace

TEST_CASE("homes come in the order of first use, then copies, all at the lowest priority") {
  PrefillFixture f(90, 12288, {40 * 12288, 0});
  CHECK(f.prefill->progress().finished);  // nothing to do yet
  f.use(f.placement);
  REQUIRE(f.finished());
  auto expected = f.files_of(f.placement->prefill_order(NodeId(1)));
  const auto copies = f.files_of(f.placement->copies(NodeId(1)));
  CHECK(expected.size() == 30);
  CHECK(copies.size() == 10);
  expected.insert(expected.end(), copies.begin(), copies.end());
  CHECK(f.asked() == expected);
  const auto asked = f.source.asked();
  for (size_t i = 0; i < asked.size(); ++i) CHECK(asked[i].second == Priority{Priority::Kind::background, i});
  const PrefillProgress progress = f.prefill->progress();
  CHECK(progress.done == 40 * 12288);
  CHECK(progress.total == 40 * 12288);
  CHECK(progress.failed == 0);
  for (uint32_t c = 0; c < 90; ++c) {
    CHECK(f.cache->tier_of(ChunkId(c)) == f.placement->tier_at(NodeId(1), ChunkId(c)));
  }
}

TEST_CASE("there is one pass, and what is kept already is not asked for") {
  PrefillFixture f(90, 12288, {40 * 12288, 0});
  const auto homes = f.placement->prefill_order(NodeId(1));
  for (const size_t i : {0U, 7U})
    f.cache->acquire(homes[i], {}, [](const auto& chunk) { CHECK(chunk.ok()); });
  f.source.inner.complete_all();
  f.use(f.placement);
  REQUIRE(f.finished());
  CHECK(f.source.inner.fetches == 40);
  CHECK(f.prefill->progress().done == 40 * 12288);
  f.use(f.placement);  // the same again
  CHECK(f.prefill->progress().finished);
  CHECK(!f.prefill->alarm().answer());
  CHECK(f.holds_at(0));
  CHECK(f.source.inner.fetches == 40);
}

TEST_CASE("a bounded number of bytes is under way, in memory that nobody else has to wait for") {
  SECTION("into RAM") {
    // 16 MiB, the least that transit memory has, though none of it is used.
    PrefillFixture f(300, 1 << 20, {kPlenty, 0});
    f.use(f.placement);
    CHECK(f.holds_at(16));
    CHECK(f.stores.metrics.transit_bytes.value() == 0);
    for (int i = 0; i < 20; ++i) {
      REQUIRE(f.source.inner.complete_one());
      CHECK(f.holds_at(16));
    }
    f.source.inner.complete_all();
  }
  SECTION("on to NVMe") {
    PrefillFixture f(60, 1 << 20, {0, NvmeStore::usable_bytes(64 << 20, kChunk)}, 64 << 20);
    f.use(f.placement);
    CHECK(f.holds_at(2));  // an eighth of 16 MiB
    CHECK(f.finished());
    for (const ChunkId chunk : f.placement->prefill_order(NodeId(1))) {
      CHECK(eventually([&] { return f.cache->tier_of(chunk) == Tier::nvme; }));
    }
  }
}

TEST_CASE("a source that is faster than NVMe is not read in vain") {
  PrefillFixture f(60, 1 << 20, {0, NvmeStore::usable_bytes(64 << 20, kChunk)}, 64 << 20);
  f.use(f.placement);
  REQUIRE(f.finished());
  for (uint32_t c = 0; c < 60; ++c) {
    if (f.placement->tier_at(NodeId(1), ChunkId(c)) == Tier::none) continue;
    CHECK(eventually([&] { return f.cache->tier_of(ChunkId(c)) == Tier::nvme; }));
  }
  // Another placement that gives the node the same: nothing is read again, not from NVMe either.
  const uint64_t fetches = f.source.inner.fetches;
  f.use(f.make_placement({0, NvmeStore::usable_bytes(64 << 20, kChunk)}));
  REQUIRE(f.finished());
  CHECK(f.prefill->progress().done == f.placement->kept_bytes(NodeId(1)));
  CHECK(f.source.inner.fetches == fetches);
  CHECK(f.stores.metrics.nvme_reads.value() == 0);
}

TEST_CASE("what it has brought in is let go of at once") {
  PrefillFixture f(90, 12288, {40 * 12288, 0});
  f.use(f.placement);
  REQUIRE(f.finished());
  // A new placement takes the place of the old one's chunks, which needs their memory.
  const auto elsewhere = std::make_shared<const PlacementMap>(f.placement->without({false, false, true}));
  f.use(elsewhere);
  REQUIRE(f.finished());
  CHECK(f.prefill->progress().failed == 0);
  for (uint32_t c = 0; c < 90; ++c) {
    if (elsewhere->tier_at(NodeId(1), ChunkId(c)) == Tier::ram)
      CHECK(f.cache->tier_of(ChunkId(c)) == Tier::ram);
  }
}

TEST_CASE("errors of single chunks are counted and the rest goes on") {
  PrefillFixture f(90, 12288, {40 * 12288, 0});
  const auto homes = f.files_of(f.placement->prefill_order(NodeId(1)));
  f.source.inner.fail_files = {homes[0], homes[5]};
  f.use(f.placement);
  REQUIRE(f.finished());
  CHECK(f.prefill->progress().failed == 2);
  CHECK(f.prefill->progress().done == 38 * 12288);
  CHECK(f.source.inner.fetches == 40);
}

TEST_CASE("another placement is followed at once") {
  PrefillFixture f(300, 1 << 20, {kPlenty, 0});
  f.use(f.placement);
  REQUIRE(f.holds_at(16));
  const auto other = f.make_placement({100 << 20, 0});
  CHECK(f.placement->copies(NodeId(1)).size() > 0);
  f.use(other);
  CHECK(f.prefill->progress().total == other->kept_bytes(NodeId(1)));
  CHECK(f.prefill->progress().done == 0);
  REQUIRE(f.finished());
  CHECK(f.prefill->progress().done == other->kept_bytes(NodeId(1)));
  // What was under way of the old one came, nothing more of it.
  const auto asked = f.asked();
  for (size_t i = 16; i < asked.size(); ++i) {
    CHECK(other->tier_at(NodeId(1), f.job.catalog->chunks(asked[i]).first) != Tier::none);
  }
  f.use(nullptr);
  CHECK(f.prefill->progress().finished);
  CHECK(f.prefill->progress().total == 0);
}

TEST_CASE("what is under way at its end has no effect") {
  PrefillFixture f(300, 1 << 20, {kPlenty, 0});
  f.use(f.placement);
  REQUIRE(f.holds_at(16));
  f.prefill.reset();
  f.source.inner.complete_all();
  CHECK(f.source.inner.fetches == 16);
}

TEST_CASE("a source that fails is left alone for a while before it is asked for more") {
  PrefillFixture f(300, 1 << 20, {kPlenty, 0});
  for (uint32_t file = 1; file <= 300; ++file) f.source.inner.fail_files.insert(FileId(file));
  f.use(f.placement);
  REQUIRE(f.holds_at(16));
  f.source.inner.complete_all();
  CHECK(f.holds_at(0));
  REQUIRE(f.turn.look_again);
  f.now += *f.turn.look_again - 1ns;
  CHECK(f.holds_at(0));
  f.now += 1ns;
  CHECK(f.holds_at(16));
  CHECK(f.prefill->progress().failed == 16);
}
