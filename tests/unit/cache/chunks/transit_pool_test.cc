#include "cache/chunks/transit_pool.h"

#include <chrono>
#include <future>

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint64_t kTransitPart = 4 * kPageSize;
constexpr TransitShares kEightParts(8 * kTransitPart);

/// Transit memory of eight parts, which is asked for by the part. What a test takes of it goes before it.
struct PoolFixture {
  explicit PoolFixture(bool has_nvme = false)
      : pool(std::move(*RamArena::create(kEightParts.capacity)), kEightParts, has_nvme, table, metrics,
             log.logger()) {}
  ~PoolFixture() {
    pool.end();
    table.clear();
  }

  std::optional<Block> reserve(TransitClass transit_class) {
    return pool.reserve(kTransitPart, transit_class);
  }
  /// All that there is for fetches of the class.
  std::vector<Block> take(TransitClass transit_class) {
    std::vector<Block> taken;
    while (auto block = reserve(transit_class)) taken.push_back(std::move(*block));
    return taken;
  }
  ChunkRef data(Block block) { return ChunkRef(new ChunkData(std::move(block), kTransitPart, pool)); }
  /// The chunk has come from the source, and no tier keeps it.
  void bring(uint32_t chunk) {
    const FetchPtr fetch =
        table.join(FetchScope::anywhere, ChunkId(chunk), {}, false, {}, {}, [](const auto&) {}).fetch;
    (void)table.publish(*fetch, data(std::move(*reserve(TransitClass::source))), false);
    pool.add(ChunkId(chunk));
  }

  CapturedLog log;
  Metrics metrics;
  ChunkTable table{8};
  TransitPool pool;
};

}  // namespace

TEST_CASE("fetches that may wait for other nodes have a quarter of transit memory until they end") {
  PoolFixture f;
  std::vector<Block> others = f.take(TransitClass::others);
  CHECK(others.size() == 2);
  const std::vector<Block> source = f.take(TransitClass::source);
  CHECK(source.size() == 6);
  others.pop_back();
  CHECK(f.take(TransitClass::others).empty());  // its transfer is still under way
  f.pool.leave(TransitClass::others, kTransitPart);
  CHECK(f.take(TransitClass::others).size() == 1);
}

TEST_CASE("a part of transit memory is for reads from NVMe, unless reads that hang have it already") {
  PoolFixture f(true);
  std::vector<Block> source = f.take(TransitClass::source);
  CHECK(source.size() == 7);
  const std::vector<Block> nvme = f.take(TransitClass::nvme);
  CHECK(nvme.size() == 1);
  CHECK(f.pool.staging_share() == 4 * kTransitPart);
  source.pop_back();
  CHECK(f.take(TransitClass::source).empty());
  f.pool.read_hangs(2 * kTransitPart);
  CHECK(f.take(TransitClass::source).size() == 1);
  CHECK(f.pool.staging_share() == 3 * kTransitPart);
  f.pool.hung_read_ended(2 * kTransitPart);
  CHECK(f.take(TransitClass::source).empty());
  CHECK(f.pool.staging_share() == 4 * kTransitPart);
}

TEST_CASE("chunks in transit memory make room, the oldest first, but none that is in use") {
  PoolFixture f;
  for (uint32_t chunk = 0; chunk < 8; ++chunk) f.bring(chunk);
  const ChunkRef used = f.table.resident(ChunkId(0));
  const std::optional<Block> room = f.reserve(TransitClass::source);
  CHECK(room);
  CHECK(f.table.resident(ChunkId(0)));
  CHECK_FALSE(f.table.resident(ChunkId(1)));
  CHECK(f.table.resident(ChunkId(2)));
  CHECK(f.take(TransitClass::source).size() == 6);
  CHECK(f.table.resident(ChunkId(0)));
}

TEST_CASE("a fetch that finds no transit memory begins once some comes free") {
  PoolFixture f;
  std::vector<ChunkRef> held;
  for (Block& block : f.take(TransitClass::source)) held.push_back(f.data(std::move(block)));
  std::optional<Block> got;
  std::promise<void> begun;
  f.pool.wait(TransitClass::source, std::make_shared<Demand>(Priority{}),
              [&]() -> std::optional<TransitClass> {
                got = f.reserve(TransitClass::source);
                if (!got) return TransitClass::source;
                begun.set_value();
                return std::nullopt;
              });
  CHECK_FALSE(f.pool.nobody_waits());
  held.pop_back();
  const std::future_status outcome = begun.get_future().wait_for(std::chrono::minutes(1));
  f.pool.end();
  CHECK(outcome == std::future_status::ready);
  CHECK(f.pool.nobody_waits());
}

TEST_CASE("memory that a network did not give back is never used again, and bounds what others are asked") {
  PoolFixture f;
  for (int times = 0; times < 2; ++times) {
    CHECK(f.pool.may_lose());
    f.pool.lose(f.data(std::move(*f.reserve(TransitClass::others))));
    f.pool.leave(TransitClass::others, kTransitPart);
  }
  CHECK_FALSE(f.pool.may_lose());
  CHECK(f.log.has("nothing more is asked of other nodes"));
  CHECK(f.take(TransitClass::source).size() == 6);
}
