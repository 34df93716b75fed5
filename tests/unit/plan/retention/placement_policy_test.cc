#include "plan/retention/placement_policy.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "cache/chunks/chunk_cache.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/made_up_job.h"
#include "tests/unit/cache/nvme/nvme_support.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kFiles = 200;
constexpr uint64_t kSize = 12288;
constexpr uint64_t kPadded = 12288;

/// A job of three nodes that uses the first `used` files, and the placement with so many chunks in each tier
/// of each node.
struct PlacedFixture {
  PlacedFixture(uint64_t in_ram, uint64_t on_nvme, const std::string& seed = "seed=1", uint32_t used = kFiles)
      : job(std::vector<uint64_t>(kFiles, kSize), 1 << 20, 3, 4, seed + " batch=2"),
        placement(std::make_shared<const PlacementMap>(
            PlacementMap::make(*job.catalog, uses_of(used),
                               std::vector<NodeCapacity>(3, {in_ram * kPadded, on_nvme * kPadded})))),
        single(*job.catalog),
        policy(*job.catalog, single) {}

  JobUses uses_of(uint32_t used) const {
    JobUses uses(*job.catalog, job.nodes);
    for (const auto& epoch : job.sequences) {
      for (uint32_t node = 0; node < job.nodes; ++node) {
        std::vector<uint32_t> samples(epoch[node]->samples().begin(), epoch[node]->samples().end());
        std::erase_if(samples, [&](uint32_t sample) { return sample >= used; });
        uses.add(EpochSequence(epoch[node]->epoch(), std::move(samples), 0), job.index, NodeId(node));
      }
    }
    return uses;
  }
  Tier placed(uint32_t chunk) const { return placement->tier_at(NodeId(1), ChunkId(chunk)); }
  std::vector<ChunkId> chunks_with(Tier tier) const {
    std::vector<ChunkId> chunks;
    for (uint32_t c = 0; c < kFiles; ++c) {
      if (placed(c) == tier) chunks.emplace_back(c);
    }
    return chunks;
  }

  MadeUpJob job;
  std::shared_ptr<const PlacementMap> placement;
  NextUsePolicy single;
  PlacementPolicy policy;
};

}  // namespace

TEST_CASE("without a placement the policy of a single node decides") {
  PlacedFixture f(10, 20);
  const TierSpace full{0, 0};
  const TierSpace ram{kPadded, 0};
  CHECK(f.policy.choose_tier(ChunkId(0), kPadded, ram, {}).tier == Tier::ram);
  CHECK(f.policy.choose_tier(ChunkId(0), kPadded, full, {}).tier == Tier::none);
  CHECK(f.policy.would_keep(ChunkId(0), kPadded, ram, {}));
  CHECK(!f.policy.would_keep(ChunkId(0), kPadded, full, {}));
  f.policy.kept(ChunkId(0), Tier::ram);
  CHECK(f.single.resident(ChunkId(0), Tier::ram));
  CHECK(f.single.residents(Tier::ram) == std::vector<ChunkId>{ChunkId(0)});
  CHECK(f.single.residents(Tier::nvme).empty());
  f.policy.dropped(ChunkId(0), Tier::ram);
  CHECK(!f.single.resident(ChunkId(0), Tier::ram));
}

TEST_CASE("a chunk is kept where the placement says, else in the other tier, else not") {
  PlacedFixture f(10, 20);
  f.policy.set_placement(f.placement, NodeId(1));
  const ChunkId in_ram = f.chunks_with(Tier::ram).front();
  const ChunkId on_nvme = f.chunks_with(Tier::nvme).front();
  const ChunkId elsewhere = f.chunks_with(Tier::none).front();
  const TierSpace room{kPadded, kPadded};
  CHECK(f.policy.choose_tier(in_ram, kPadded, room, {}).tier == Tier::ram);
  CHECK(f.policy.choose_tier(on_nvme, kPadded, room, {}).tier == Tier::nvme);
  CHECK(f.policy.choose_tier(elsewhere, kPadded, room, {}).tier == Tier::none);
  CHECK(f.policy.choose_tier(in_ram, kPadded, {kPadded - 1, kPadded}, {}).tier == Tier::nvme);
  CHECK(f.policy.choose_tier(on_nvme, kPadded, {kPadded, kPadded - 1}, {}).tier == Tier::ram);
  CHECK(f.policy.choose_tier(on_nvme, kPadded, {kPadded, kPadded, false}, {}).tier == Tier::ram);
  CHECK(f.policy.choose_tier(in_ram, kPadded, {0, 0}, {}).tier == Tier::none);
  CHECK(f.policy.belongs_in_ram(in_ram));
  CHECK(!f.policy.belongs_in_ram(on_nvme));
  CHECK(!f.policy.belongs_in_ram(elsewhere));
}

TEST_CASE("residents from before make room for what is placed, and nothing placed ever does") {
  PlacedFixture f(10, 20);
  const auto in_ram = f.chunks_with(Tier::ram);
  const auto elsewhere = f.chunks_with(Tier::none);
  // One that is placed (on NVMe, though it lies in RAM) and two that are not.
  const ChunkId other = f.chunks_with(Tier::nvme).front();
  for (const ChunkId chunk : {elsewhere[0], other, elsewhere[1]}) f.policy.kept(chunk, Tier::ram);
  f.policy.set_placement(f.placement, NodeId(1));

  std::set<ChunkId> evicted;
  for (int i = 0; i < 2; ++i) {
    CHECK(f.policy.would_keep(in_ram[0], kPadded, {0, 0}, {}));
    const TierChoice choice = f.policy.choose_tier(in_ram[i], kPadded, {0, 0}, {});
    CHECK(choice.tier == Tier::ram);
    REQUIRE(choice.evict.size() == 1);  // no more than it takes
    CHECK(!f.single.resident(choice.evict[0], Tier::ram));
    evicted.insert(choice.evict[0]);
    f.policy.kept(in_ram[i], Tier::ram);
  }
  CHECK(evicted == std::set<ChunkId>{elsewhere[0], elsewhere[1]});
  CHECK(!f.policy.would_keep(in_ram[2], kPadded, {0, 0}, {}));
  CHECK(f.policy.choose_tier(in_ram[2], kPadded, {0, 0}, {}).tier == Tier::none);
}

TEST_CASE("what an older placement kept makes room; without one the single node's policy has it back") {
  PlacedFixture f(10, 20);
  const PlacedFixture next(10, 20, "seed=2");
  f.policy.set_placement(f.placement, NodeId(1));
  for (const ChunkId chunk : f.chunks_with(Tier::ram)) f.policy.kept(chunk, Tier::ram);
  f.policy.set_placement(next.placement, NodeId(1));
  size_t made_room = 0;
  for (const ChunkId chunk : next.chunks_with(Tier::ram)) {
    if (f.single.resident(chunk, Tier::ram)) continue;
    const TierChoice choice = f.policy.choose_tier(chunk, kPadded, {0, 0}, {});
    if (choice.tier == Tier::none) continue;  // all that is left has a place, on NVMe
    for (const ChunkId victim : choice.evict) {
      CHECK(f.placed(victim.value) == Tier::ram);
      CHECK(next.placed(victim.value) == Tier::none);
      ++made_room;
    }
    f.policy.kept(chunk, Tier::ram);
  }
  CHECK(made_room > 0);
  CHECK(f.single.residents(Tier::ram).size() == 10);
  f.policy.set_placement(nullptr, NodeId(1));
  CHECK(f.policy.choose_tier(f.chunks_with(Tier::none).front(), kPadded, {0, 0}, {}).tier == Tier::none);
  CHECK(f.policy.choose_tier(f.chunks_with(Tier::none).front(), kPadded, {kPadded, 0}, {}).tier == Tier::ram);
}

TEST_CASE("files of no plan take free room, and leave it to what is placed") {
  std::vector<uint64_t> sizes(kFiles, kSize);
  const MadeUpJob job(sizes, 1 << 20, 1, 1, "seed=1");
  JobUses uses(*job.catalog, 1);
  uses.add(EpochSequence(Epoch(0), {0, 1}, 0), job.index, NodeId(0));  // only two of them are used
  const std::vector<NodeCapacity> capacity(1, {10 * kPadded, 0});
  NextUsePolicy single(*job.catalog);
  PlacementPolicy policy(*job.catalog, single);
  policy.set_placement(
      std::make_shared<const PlacementMap>(PlacementMap::make(*job.catalog, std::move(uses), capacity)),
      NodeId(0));
  CHECK(policy.choose_tier(ChunkId(7), kPadded, {kPadded, 0}, {}).tier == Tier::ram);
  CHECK(policy.would_keep(ChunkId(7), kPadded, {kPadded, 0}, {}));
  policy.kept(ChunkId(7), Tier::ram);
  CHECK(policy.choose_tier(ChunkId(8), kPadded, {0, 0}, {}).tier == Tier::none);
  const TierChoice choice = policy.choose_tier(ChunkId(1), kPadded, {0, 0}, {});
  CHECK(choice.tier == Tier::ram);
  CHECK(choice.evict == std::vector<ChunkId>{ChunkId(7)});
}

TEST_CASE("a file of no plan that was dropped and came back makes room once") {
  const MadeUpJob job({10000, 4000, 4000}, 1 << 20, 1, 1, "seed=1");
  JobUses uses(*job.catalog, 1);
  uses.add(EpochSequence(Epoch(0), {0}, 0), job.index, NodeId(0));
  NextUsePolicy single(*job.catalog);
  PlacementPolicy policy(*job.catalog, single);
  policy.set_placement(std::make_shared<const PlacementMap>(PlacementMap::make(
                           *job.catalog, std::move(uses), std::vector<NodeCapacity>(1, {kPadded, 0}))),
                       NodeId(0));
  policy.kept(ChunkId(1), Tier::ram);
  policy.kept(ChunkId(2), Tier::ram);
  policy.dropped(ChunkId(2), Tier::ram);
  policy.kept(ChunkId(2), Tier::ram);
  CHECK(!policy.would_keep(ChunkId(0), kPadded, {0, 0}, {}));
  CHECK(policy.choose_tier(ChunkId(0), kPadded, {4096, 0}, {}).evict ==
        std::vector<ChunkId>{ChunkId(2), ChunkId(1)});
}

TEST_CASE("in any state would_keep() says what choose_tier() does, and that makes the room it needs") {
  std::mt19937 random(6);
  for (int round = 0; round < 300; ++round) {
    const uint32_t used = round % 2 == 0 ? kFiles : kFiles / 2;
    PlacedFixture f(random() % 40, random() % 40, "seed=" + std::to_string(round % 7), used);
    std::map<ChunkId, Tier> resident;
    NodeCapacity room{random() % 60 * kPadded, random() % 60 * kPadded};
    const auto room_in = [&](Tier tier) -> uint64_t& { return tier == Tier::ram ? room.ram : room.nvme; };
    for (int step = 0; step < 400; ++step) {
      if (step == 50) f.policy.set_placement(f.placement, NodeId(1));
      const ChunkId chunk(static_cast<uint32_t>(random() % kFiles));
      const auto here = resident.find(chunk);
      if (here != resident.end()) {
        if (random() % 2 == 0) {  // a read failed
          room_in(here->second) += kPadded;
          f.policy.dropped(chunk, here->second);
          resident.erase(here);
        }
        continue;
      }
      const TierSpace space{room.ram, room.nvme, random() % 8 != 0};
      const bool would = f.policy.would_keep(chunk, kPadded, space, {});
      const TierChoice choice = f.policy.choose_tier(chunk, kPadded, space, {});
      REQUIRE(would == (choice.tier != Tier::none));
      for (const ChunkId victim : choice.evict) {
        REQUIRE(resident.at(victim) == choice.tier);
        if (step >= 50) REQUIRE(f.placed(victim.value) == Tier::none);
        room_in(choice.tier) += kPadded;
        resident.erase(victim);
      }
      if (choice.tier == Tier::none) continue;
      if (step >= 50 && chunk.value < used) REQUIRE(f.placed(chunk.value) != Tier::none);
      REQUIRE(room_in(choice.tier) >= kPadded);
      room_in(choice.tier) -= kPadded;
      resident[chunk] = choice.tier;
      f.policy.kept(chunk, choice.tier);
    }
  }
}

TEST_CASE("a node's tiers really hold all that is placed there") {
  const bool from_before = GENERATE(false, true);
  constexpr uint32_t kChunk = 64 << 10;
  constexpr uint64_t kRam = 8 << 20;
  constexpr uint64_t kNvme = 16 << 20;
  std::mt19937 random(8);
  std::vector<uint64_t> sizes(1000);  // several times what transit memory holds
  // Where chunks of many sizes replace each other, the store fills with pieces that its index has no room
  // for.
  for (uint64_t& size : sizes)
    size = from_before ? 50000 : 1 + random() % (random() % 10 == 0 ? 400000 : 90000);
  const MadeUpJob job(sizes, kChunk, 3, 3, "seed=3 batch=1");
  const std::vector<NodeCapacity> capacities(3, {kRam, NvmeStore::usable_bytes(kNvme, kChunk)});
  const auto placement =
      std::make_shared<const PlacementMap>(PlacementMap::make(*job.catalog, job.uses(), capacities));

  testing::StoreFixture stores(IoKind::threads);
  stores.capacity = kNvme;
  NvmeStore& store = stores.open(SegmentLayout());
  NextUsePolicy single(*job.catalog);
  PlacementPolicy policy(*job.catalog, single);
  CapturedLog log;
  FakeSource source(FakeSource::Answers::at_once);
  const auto cache = std::move(
      *ChunkCache::create({*job.catalog, source, {&store}, policy, stores.metrics, log.logger()}, kRam));
  std::vector<uint32_t> order(job.catalog->chunk_count());
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  // One at a time: a slot that is being read is not free when its chunk is evicted.
  const auto fetch_all = [&] {
    for (const uint32_t c : order) {
      testing::Waiter<Status> fetched;
      cache->acquire(ChunkId(c), {}, [&](const Result<AcquiredChunk>& chunk) {
        fetched.callback()(chunk ? Status() : Status(chunk.error()));
      });
      CHECK(fetched.get().ok());
      CHECK(eventually([&] { return !cache->writes_are_behind(); }));
    }
  };
  if (from_before) {
    fetch_all();  // first touch fills both tiers
    CHECK(cache->space().ram < kChunk);
  }
  policy.set_placement(placement, NodeId(1));
  fetch_all();
  std::vector<ChunkId> placed;
  for (const uint32_t c : order) {
    if (placement->tier_at(NodeId(1), ChunkId(c)) != Tier::none) placed.push_back(ChunkId(c));
  }
  CHECK(placed.size() > 100);
  CHECK(eventually([&] {  // the last writes have ended
    return std::all_of(placed.begin(), placed.end(),
                       [&](ChunkId chunk) { return cache->tier_of(chunk) != Tier::none; });
  }));
  CHECK(stores.metrics.nvme_writes_skipped.value() == 0);
  CHECK(store.troubles().error.empty());
  CHECK(cache->stop(1min));
}
