#include "plan/placement/placement_map.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/made_up_job.h"
#include "tests/support/nopfs_rule.h"

using namespace clairfs;

namespace {

using Random = std::mt19937;

uint64_t between(Random& random, uint64_t least, uint64_t most) {
  return least + random() % (most - least + 1);
}

/// What a chunk takes of a tier, from the interfaces of the tiers.
uint64_t taken(const Catalog& catalog, ChunkId chunk, Tier tier) {
  const uint64_t pages = footprint(tier, catalog.range(chunk).length);
  return tier == Tier::nvme ? std::max(pages, kNvmeSmallestShare) : pages;
}

uint64_t& in_tier(NodeCapacity& capacity, Tier tier) {
  return tier == Tier::ram ? capacity.ram : capacity.nvme;
}

/// All that must hold of any placement, whatever its quality.
void check_rules(const PlacementMap& placement, const Catalog& catalog, const JobUses& uses,
                 const std::vector<NodeCapacity>& capacities) {
  std::vector<NodeCapacity> room = capacities;           // left, after homes and copies
  std::vector<NodeCapacity> room_of_homes = capacities;  // left, if there were no copies
  std::vector<uint64_t> kept(capacities.size());
  uint64_t homeless = 0;
  for (uint32_t c = 0; c < catalog.chunk_count(); ++c) {
    const ChunkId chunk(c);
    INFO("chunk " << c);
    const auto home = placement.home(chunk);
    const auto holders = placement.holders(chunk);
    CHECK(placement.covers(chunk) == (uses.total(chunk) > 0));
    if (uses.total(chunk) == 0) CHECK(!home);
    if (!home && uses.total(chunk) > 0) homeless += catalog.range(chunk).length;
    CHECK(holders.empty() == !home.has_value());
    if (home) CHECK(holders.front() == home->node);
    if (home) CHECK(home->tier != Tier::none);
    uint32_t keeping = 0;
    for (uint32_t n = 0; n < capacities.size(); ++n) {
      const NodeId node(n);
      const Tier tier = placement.tier_at(node, chunk);
      if (tier == Tier::none) continue;
      ++keeping;
      const uint64_t bytes = taken(catalog, chunk, tier);
      REQUIRE(in_tier(room[n], tier) >= bytes);  // no tier holds more than its capacity
      in_tier(room[n], tier) -= bytes;
      kept[n] += catalog.range(chunk).length;
      CHECK(std::count(holders.begin(), holders.end(), node) == 1);
      if (home->node == node) {
        CHECK(home->tier == tier);
        in_tier(room_of_homes[n], tier) -= bytes;
      } else {
        CHECK(uses.uses(chunk, node) > 0);  // copies are for those who use them
      }
    }
    CHECK(keeping == holders.size());
  }
  CHECK(placement.homeless_bytes() == homeless);
  for (uint32_t n = 0; n < capacities.size(); ++n) CHECK(placement.kept_bytes(NodeId(n)) == kept[n]);
  // No chunk has a second holder while one that could fit is without a home.
  for (uint32_t c = 0; c < catalog.chunk_count(); ++c) {
    const ChunkId chunk(c);
    if (uses.total(chunk) == 0 || placement.home(chunk)) continue;
    for (NodeCapacity& left : room_of_homes) {
      INFO("homeless chunk " << c);
      CHECK(taken(catalog, chunk, Tier::ram) > left.ram);
      CHECK(taken(catalog, chunk, Tier::nvme) > left.nvme);
    }
  }
}

/// Sizes of one kind or another: equal, small, or some huge ones among them.
std::vector<uint64_t> random_sizes(Random& random) {
  const auto kind = between(random, 0, 2);
  const uint64_t equal = between(random, 1, 60000);
  std::vector<uint64_t> sizes(between(random, 1, 300));
  for (uint64_t& size : sizes) {
    size = kind == 0 ? equal : between(random, 0, kind == 2 && random() % 20 == 0 ? 3000000 : 30000);
  }
  return sizes;
}

std::vector<NodeCapacity> random_capacities(Random& random, uint32_t nodes, uint64_t total) {
  std::vector<NodeCapacity> capacities(nodes);
  const bool ram = random() % 4 != 0;
  const bool nvme = random() % 4 != 0;
  for (NodeCapacity& capacity : capacities) {
    const uint64_t most = total * between(random, 0, 3) / nodes;
    if (ram && random() % 5 != 0) capacity.ram = between(random, 0, most);
    if (nvme && random() % 5 != 0) capacity.nvme = between(random, 0, most);
  }
  return capacities;
}

std::string random_plan(Random& random, uint32_t nodes) {
  const std::string seed = "seed=" + std::to_string(random() % 1000);
  switch (random() % 4) {
    case 0:
      return seed + " sampler=torch.random batch=1";  // every node reads all of it
    case 1:
      return seed + " sampler=torch.random replacement=true batch=1";
    case 2:
      return seed + " sampler=nopfs batch=" + std::to_string(nodes * 2);
    default:
      return seed + " batch=3";
  }
}

/// Where every chunk is, and as what.
std::vector<std::vector<Tier>> layout(const PlacementMap& placement, uint32_t chunks, uint32_t nodes) {
  std::vector<std::vector<Tier>> tiers(chunks);
  for (uint32_t c = 0; c < chunks; ++c) {
    for (uint32_t n = 0; n < nodes; ++n) tiers[c].push_back(placement.tier_at(NodeId(n), ChunkId(c)));
  }
  return tiers;
}

HoldersWorth worth_of(const MadeUpJob& job, const JobUses& uses, const PlacementMap& placement) {
  return worth_of(*job.catalog, uses,
                  [&](ChunkId chunk, NodeId node) { return placement.tier_at(node, chunk) != Tier::none; });
}

uint64_t total_bytes(const Catalog& catalog) {
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < catalog.chunk_count(); ++c) bytes += taken(catalog, ChunkId(c), Tier::nvme);
  return bytes;
}

}  // namespace

TEST_CASE("any placement keeps within its capacities and gives homes before copies") {
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    const auto nodes = static_cast<uint32_t>(between(random, 1, 9));
    const auto epochs = static_cast<uint32_t>(between(random, 1, 6));
    const std::string plan = random_plan(random, nodes);
    const MadeUpJob job(random_sizes(random), 64 << 10, nodes, epochs, plan);
    const auto capacities = random_capacities(random, nodes, total_bytes(*job.catalog));
    const JobUses uses = job.uses();
    INFO("round " << round << ": " << nodes << " nodes, " << epochs << " epochs, " << plan);
    const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
    check_rules(placement, *job.catalog, uses, capacities);
  }
}

TEST_CASE("the same uses give the same placement, in whatever order they were counted") {
  Random random(2);
  for (int round = 0; round < 40; ++round) {
    const auto nodes = static_cast<uint32_t>(between(random, 1, 9));
    const MadeUpJob job(random_sizes(random), 64 << 10, nodes, 3, random_plan(random, nodes));
    const auto capacities = random_capacities(random, nodes, total_bytes(*job.catalog));
    JobUses backwards(*job.catalog, nodes);
    for (const auto& epoch : job.sequences) {
      for (uint32_t node = nodes; node-- > 0;) backwards.add(*epoch[node], job.index, NodeId(node));
    }
    const PlacementMap one = PlacementMap::make(*job.catalog, job.uses(), capacities);
    const PlacementMap two = PlacementMap::make(*job.catalog, std::move(backwards), capacities);
    CHECK(layout(one, job.catalog->chunk_count(), nodes) == layout(two, job.catalog->chunk_count(), nodes));
    for (uint32_t c = 0; c < job.catalog->chunk_count(); ++c) {
      CHECK(one.home(ChunkId(c)) == two.home(ChunkId(c)));
    }
    for (uint32_t n = 0; n < nodes; ++n) CHECK(one.prefill_order(NodeId(n)) == two.prefill_order(NodeId(n)));
  }
}

TEST_CASE("which rank a node has makes no difference to the quality") {
  Random random(3);
  for (int round = 0; round < 60; ++round) {
    const auto nodes = static_cast<uint32_t>(between(random, 2, 9));
    const bool equal = round % 2 == 0;
    std::vector<uint64_t> sizes(1000);
    for (uint64_t& size : sizes) size = equal ? 20000 : between(random, 1, 40000);
    const MadeUpJob job(sizes, 64 << 10, nodes, 5, "batch=2 seed=" + std::to_string(round));
    auto capacities = random_capacities(random, nodes, total_bytes(*job.catalog));
    const JobUses uses = job.uses();
    const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);

    std::vector<uint32_t> role_of(nodes);
    std::iota(role_of.begin(), role_of.end(), 0);
    std::shuffle(role_of.begin(), role_of.end(), random);
    std::vector<NodeCapacity> permuted;
    for (const uint32_t role : role_of) permuted.push_back(capacities[role]);
    const JobUses permuted_uses = job.uses(role_of);
    const PlacementMap other = PlacementMap::make(*job.catalog, permuted_uses, permuted);
    const HoldersWorth a = worth_of(job, uses, placement);
    const HoldersWorth b = worth_of(job, permuted_uses, other);
    INFO("round " << round << ": " << nodes << " nodes; local uses " << a.local << " and " << b.local
                  << ", PFS reads " << a.pfs_reads << " and " << b.pfs_reads);
    // Where chunks are of one size, how many find a home does not depend on who is who.
    if (equal) CHECK(a.pfs_reads == b.pfs_reads);
    // Ties between nodes that use a chunk equally go to the one with more room, and then by rank: that moves
    // some chunks, not the quality.
    const double tolerance = 0.01 * static_cast<double>(a.local) + 20;
    CHECK(std::abs(static_cast<double>(a.local) - static_cast<double>(b.local)) <= tolerance);
  }
}

TEST_CASE("every chunk has a home as soon as they all fit, else as many as fit") {
  for (const double share : {0.0, 0.3, 0.5, 1.0, 1.5, 4.0}) {
    constexpr uint32_t kFiles = 2000;
    constexpr uint32_t kNodes = 4;
    const MadeUpJob job(std::vector<uint64_t>(kFiles, 12288), 1 << 20, kNodes, 5, "seed=5 batch=4");
    const auto tier = static_cast<uint64_t>(share * kFiles / kNodes / 2) * 12288;
    const std::vector<NodeCapacity> capacities(kNodes, {tier, tier});
    const JobUses uses = job.uses();
    const HoldersWorth worth = worth_of(job, uses, PlacementMap::make(*job.catalog, uses, capacities));
    INFO("N·D = " << share << " S");
    CHECK(worth.held == std::min<uint64_t>(kFiles, static_cast<uint64_t>(share * kFiles)));
  }
}

TEST_CASE("with equal nodes, no placement without second homes has more local hits") {
  // For any price l of a slot, hits with homes only are at most sum over chunks of max(0, most uses - l),
  // plus l for each slot (weak duality of the assignment problem).
  for (const uint32_t nodes : {2U, 4U, 8U, 64U}) {
    for (const double share : {0.25, 0.5, 1.0}) {
      constexpr uint32_t kFiles = 6400;
      const MadeUpJob job(std::vector<uint64_t>(kFiles, 12288), 1 << 20, nodes, 8, "seed=6 batch=4");
      const auto slots = static_cast<uint64_t>(share * kFiles / nodes);
      const std::vector<NodeCapacity> capacities(nodes, {slots / 2 * 12288, (slots - slots / 2) * 12288});
      const JobUses uses = job.uses();
      uint64_t bound = UINT64_MAX;
      for (uint64_t price = 0; price <= 8; ++price) {
        uint64_t hits = price * slots * nodes;
        for (uint32_t c = 0; c < kFiles; ++c) {
          uint64_t most = 0;
          for (uint32_t n = 0; n < nodes; ++n)
            most = std::max<uint64_t>(most, uses.uses(ChunkId(c), NodeId(n)));
          hits += most > price ? most - price : 0;
        }
        bound = std::min(bound, hits);
      }
      const HoldersWorth worth = worth_of(job, uses, PlacementMap::make(*job.catalog, uses, capacities));
      INFO(nodes << " nodes, N·D = " << share << " S: " << worth.local << " local uses, at most " << bound);
      CHECK(worth.local_once <= bound);
      CHECK(static_cast<double>(worth.local_once) >= 0.998 * static_cast<double>(bound));
    }
  }
}

TEST_CASE("against NoPFS's rule: never more PFS reads, and no fewer local hits by homes") {
  Random random(4);
  int covered = 0;
  for (int round = 0; round < 300; ++round) {
    const auto nodes = static_cast<uint32_t>(between(random, 1, 9));
    const auto epochs = static_cast<uint32_t>(between(random, 1, 12));
    const bool equal = round % 3 != 0;
    std::vector<uint64_t> sizes(between(random, 500, 1500) / nodes * nodes);  // nothing is used twice to pad
    for (uint64_t& size : sizes) size = equal ? 20000 : between(random, 4097, 40000);
    const std::string plan = random_plan(random, nodes);
    const MadeUpJob job(sizes, 64 << 10, nodes, epochs, plan);
    const auto capacities = random_capacities(random, nodes, total_bytes(*job.catalog));
    const JobUses uses = job.uses();
    const auto holders = nopfs_holders(*job.catalog, uses, capacities);
    const HoldersWorth theirs = worth_of(*job.catalog, uses, [&](ChunkId chunk, NodeId node) {
      return bool{holders[node.index()][chunk.index()]};
    });
    const HoldersWorth ours = worth_of(job, uses, PlacementMap::make(*job.catalog, uses, capacities));
    INFO("round " << round << ": " << nodes << " nodes, " << epochs << " epochs, " << sizes.size()
                  << " files, " << plan << (equal ? ", equal" : "") << ". Ours and theirs: PFS reads "
                  << ours.pfs_reads << " and " << theirs.pfs_reads << ", local " << ours.local << " and "
                  << theirs.local << ", of one holder " << theirs.local_once);
    if (equal) {
      CHECK(ours.pfs_reads <= theirs.pfs_reads);
    } else {
      CHECK(static_cast<double>(ours.pfs_bytes) <= 1.005 * static_cast<double>(theirs.pfs_bytes));
    }
    // Where some chunks are used more than others, PFS reads come before local hits.
    const bool even = plan.find("replacement") == std::string::npos;
    // A second holder of a chunk saves its node the network and costs another chunk its only holder, so NoPFS
    // may have more local hits. Of what it holds once it has no more.
    if (even)
      CHECK(static_cast<double>(ours.local_bytes) >= 0.99 * static_cast<double>(theirs.local_once_bytes));
    // Where its rule covers the dataset, nothing is in the way of having as many.
    if (even && theirs.held == ours.held) {
      CHECK(static_cast<double>(ours.local_bytes) >= 0.99 * static_cast<double>(theirs.local_bytes));
      ++covered;
    }
  }
  CHECK(covered >= 10);  // the last check has had its turn
}

TEST_CASE("the most used chunks of a node lie in its RAM") {
  constexpr uint32_t kNodes = 3;
  const MadeUpJob job(std::vector<uint64_t>(900, 12288), 1 << 20, kNodes, 8, "seed=7 batch=4");
  const std::vector<NodeCapacity> capacities(kNodes, {100 * 12288, 200 * 12288});
  const JobUses uses = job.uses();
  const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
  for (uint32_t n = 0; n < kNodes; ++n) {
    uint32_t least_in_ram = UINT32_MAX;
    uint32_t most_on_nvme = 0;
    uint32_t in_ram = 0;
    for (uint32_t c = 0; c < job.catalog->chunk_count(); ++c) {
      const uint32_t count = uses.uses(ChunkId(c), NodeId(n));
      const Tier tier = placement.tier_at(NodeId(n), ChunkId(c));
      if (tier == Tier::ram) least_in_ram = std::min(least_in_ram, count);
      if (tier == Tier::nvme) most_on_nvme = std::max(most_on_nvme, count);
      in_ram += tier == Tier::ram ? 1 : 0;
    }
    CHECK(in_ram == 100);
    CHECK(least_in_ram >= most_on_nvme);
  }
}

TEST_CASE("uneven use: RAM for what is read most, homes for what would be read most from the PFS") {
  constexpr uint32_t kNodes = 3;
  const MadeUpJob job(std::vector<uint64_t>(600, 12288), 1 << 20, kNodes, 1, "seed=12 batch=1");
  JobUses uses(*job.catalog, kNodes);
  Random random(12);
  for (uint32_t node = 0; node < kNodes; ++node) {
    std::vector<uint32_t> samples(2000);
    for (uint32_t& sample : samples) sample = static_cast<uint32_t>(random() % 600);
    uses.add(EpochSequence(Epoch(0), std::move(samples), 0), job.index, NodeId(node));
  }
  for (const uint64_t slots : {50U, 100U, 240U}) {  // 200 would do
    const std::vector<NodeCapacity> capacities(kNodes, {slots * 12288 / 2, slots * 12288 / 2});
    const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
    uint32_t least_with_home = UINT32_MAX;
    uint32_t most_without = 0;
    for (uint32_t c = 0; c < job.catalog->chunk_count(); ++c) {
      uint32_t& extreme = placement.home(ChunkId(c)) ? least_with_home : most_without;
      const uint32_t total = uses.total(ChunkId(c));
      extreme = placement.home(ChunkId(c)) ? std::min(extreme, total) : std::max(extreme, total);
    }
    if (slots < 200) CHECK(least_with_home >= most_without);
    for (uint32_t n = 0; n < kNodes; ++n) {
      uint32_t least_in_ram = UINT32_MAX;
      uint32_t most_on_nvme = 0;
      for (const ChunkId chunk : placement.prefill_order(NodeId(n))) {
        const bool in_ram = placement.tier_at(NodeId(n), chunk) == Tier::ram;
        if (in_ram) least_in_ram = std::min(least_in_ram, uses.total(chunk));
        if (!in_ram) most_on_nvme = std::max(most_on_nvme, uses.total(chunk));
      }
      CHECK(least_in_ram >= most_on_nvme);
    }
  }
}

TEST_CASE("uneven use: where all find a home, only local hits count") {
  // Node 1 uses everything most, but has room for half of it. The half that is used more in all is the one
  // that node 0 could serve as well.
  const MadeUpJob job(std::vector<uint64_t>(100, 12288), 1 << 20, 2, 1, "seed=1 batch=1");
  JobUses uses(*job.catalog, 2);
  std::vector<uint32_t> zero;
  std::vector<uint32_t> one;
  for (uint32_t sample = 0; sample < 100; ++sample) {
    // Uses by node 0 and by node 1.
    const std::pair<int, int> counts = sample < 50 ? std::pair(3, 4) : std::pair(0, 5);
    zero.insert(zero.end(), counts.first, sample);
    one.insert(one.end(), counts.second, sample);
  }
  uses.add(EpochSequence(Epoch(0), zero, 0), job.index, NodeId(0));
  uses.add(EpochSequence(Epoch(0), one, 0), job.index, NodeId(1));
  const std::vector<NodeCapacity> capacities(2, {50 * 12288, 0});
  const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
  CHECK(placement.homeless_bytes() == 0);
  CHECK(worth_of(job, uses, placement).local == 50 * 3 + 50 * 5);
}

TEST_CASE(
    "uneven use and sizes: large chunks that are used much have a home before small ones split the room") {
  // In pages: two chunks of five, used nine times, and one of two that a single node uses eight times. They
  // have twelve pages in all, and so have the nodes, but not in one piece.
  const MadeUpJob job({5 * 4096, 5 * 4096, 2 * 4096}, 1 << 20, 2, 1, "seed=1 batch=1");
  JobUses uses(*job.catalog, 2);
  uses.add(EpochSequence(Epoch(0), {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2}, 0), job.index,
           NodeId(0));
  uses.add(EpochSequence(Epoch(0), {0, 0, 0, 0, 1, 1, 1, 1}, 0), job.index, NodeId(1));
  const std::vector<NodeCapacity> capacities(2, {6 * 4096, 0});
  const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
  CHECK(placement.home(ChunkId(0)));
  CHECK(placement.home(ChunkId(1)));
}

TEST_CASE("what part of equal chunks a node gets is no region of the dataset") {
  constexpr uint32_t kFiles = 1000;
  const MadeUpJob job(std::vector<uint64_t>(kFiles, 12288), 1 << 20, 2, 1, "seed=13 batch=4");
  const std::vector<NodeCapacity> capacities(2, {0, 250 * 12288});
  const PlacementMap placement = PlacementMap::make(*job.catalog, job.uses(), capacities);
  for (uint32_t part = 0; part < 10; ++part) {
    int with_home = 0;
    for (uint32_t c = part * 100; c < part * 100 + 100; ++c) with_home += placement.home(ChunkId(c)) ? 1 : 0;
    CHECK(with_home > 30);
    CHECK(with_home < 70);
  }
}

TEST_CASE("spare room holds what a node uses most") {
  constexpr uint32_t kNodes = 4;
  const MadeUpJob job(std::vector<uint64_t>(400, 12288), 1 << 20, kNodes, 8, "seed=8 batch=4");
  const std::vector<NodeCapacity> capacities(kNodes, {0, 200 * 12288});
  const JobUses uses = job.uses();
  const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
  for (uint32_t n = 0; n < kNodes; ++n) {
    uint32_t least_kept = UINT32_MAX;
    uint32_t most_elsewhere = 0;
    for (uint32_t c = 0; c < job.catalog->chunk_count(); ++c) {
      const uint32_t count = uses.uses(ChunkId(c), NodeId(n));
      const bool kept = placement.tier_at(NodeId(n), ChunkId(c)) != Tier::none;
      if (kept && placement.home(ChunkId(c))->node != NodeId(n)) least_kept = std::min(least_kept, count);
      if (!kept) most_elsewhere = std::max(most_elsewhere, count);
    }
    CHECK(least_kept >= most_elsewhere);
    CHECK(placement.kept_bytes(NodeId(n)) == 200 * 12288);
  }
}

TEST_CASE("a home reads its chunks in the order in which the job first uses them; copies come apart") {
  constexpr uint32_t kNodes = 3;
  const MadeUpJob job(std::vector<uint64_t>(60, 150000), 64 << 10, kNodes, 2, "seed=9 batch=1");
  const JobUses uses = job.uses();
  const std::vector<NodeCapacity> capacities(kNodes, {100 * 65536, 0});
  const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
  size_t homes = 0;
  for (uint32_t n = 0; n < kNodes; ++n) {
    const auto before = [&](ChunkId a, ChunkId b) { return uses.first_use(a) < uses.first_use(b); };
    const auto prefill = placement.prefill_order(NodeId(n));
    const auto copies = placement.copies(NodeId(n));
    CHECK(std::is_sorted(prefill.begin(), prefill.end(), before));
    CHECK(std::is_sorted(copies.begin(), copies.end(), before));
    CHECK(!copies.empty());
    for (const ChunkId chunk : prefill) CHECK(placement.home(chunk)->node == NodeId(n));
    for (const ChunkId chunk : copies) CHECK(placement.home(chunk)->node != NodeId(n));
    for (const ChunkId chunk : copies) CHECK(placement.tier_at(NodeId(n), chunk) == Tier::ram);
    homes += prefill.size();
  }
  CHECK(homes == job.catalog->chunk_count());
}

TEST_CASE("an uneven dataset: a few huge files are spread over the nodes") {
  std::vector<uint64_t> sizes(50, 3000);
  for (int huge = 0; huge < 3; ++huge) sizes.push_back(100 * 65536);
  const MadeUpJob job(sizes, 64 << 10, 4, 5, "seed=10 batch=1");
  // 3 * 100 chunks of 64 KiB and 50 of a page, which take two pages of NVMe: no node holds a huge file whole.
  const std::vector<NodeCapacity> capacities(4, {50 * 65536, 30 * 65536});
  const JobUses uses = job.uses();
  const PlacementMap placement = PlacementMap::make(*job.catalog, uses, capacities);
  check_rules(placement, *job.catalog, uses, capacities);
  CHECK(placement.homeless_bytes() == 0);
  for (uint32_t n = 0; n < 4; ++n) CHECK(placement.kept_bytes(NodeId(n)) > 40 * 65536);
}

TEST_CASE("when nodes die what they held finds a new home and nothing else moves") {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const auto nodes = static_cast<uint32_t>(between(random, 2, 9));
    const MadeUpJob job(random_sizes(random), 64 << 10, nodes, 4, random_plan(random, nodes));
    auto capacities = random_capacities(random, nodes, total_bytes(*job.catalog));
    const JobUses uses = job.uses();
    const PlacementMap before = PlacementMap::make(*job.catalog, uses, capacities);
    std::vector<bool> dead(nodes);
    for (uint64_t deaths = between(random, 1, nodes - 1); deaths > 0; --deaths) dead[random() % nodes] = true;
    const PlacementMap after = before.without(dead);
    INFO("round " << round << ": " << nodes << " nodes");
    for (uint32_t n = 0; n < nodes; ++n) {
      if (dead[n]) capacities[n] = {};
    }
    check_rules(after, *job.catalog, uses, capacities);
    for (uint32_t c = 0; c < job.catalog->chunk_count(); ++c) {
      const ChunkId chunk(c);
      const auto old_home = before.home(chunk);
      if (!old_home) CHECK(!after.home(chunk));
      if (!old_home) continue;
      if (!dead[old_home->node.index()]) CHECK(after.home(chunk) == old_home);
      const auto holders = before.holders(chunk);
      const bool has_copy =
          std::any_of(holders.begin(), holders.end(), [&](NodeId node) { return !dead[node.index()]; });
      if (has_copy) {
        REQUIRE(after.home(chunk));
        CHECK(before.tier_at(after.home(chunk)->node, chunk) == after.home(chunk)->tier);
      }
      for (uint32_t n = 0; n < nodes; ++n) {
        const Tier was = before.tier_at(NodeId(n), chunk);
        const Tier is = after.tier_at(NodeId(n), chunk);
        const bool new_home = after.home(chunk) && after.home(chunk)->node == NodeId(n);
        if (was == Tier::none && is != Tier::none) CHECK((new_home && !has_copy));
        if (was != Tier::none && is != Tier::none) CHECK(was == is);
      }
    }
  }
}

TEST_CASE("the least used copies make room for what lost its home") {
  constexpr uint32_t kNodes = 4;
  constexpr uint32_t kFiles = 400;
  const MadeUpJob job(std::vector<uint64_t>(kFiles, 12288), 1 << 20, kNodes, 8, "seed=11 batch=4");
  const std::vector<NodeCapacity> capacities(kNodes, {100 * 12288, 50 * 12288});
  const JobUses uses = job.uses();
  const PlacementMap before = PlacementMap::make(*job.catalog, uses, capacities);
  const PlacementMap after = before.without({false, true, false, false});
  CHECK(before.homeless_bytes() == 0);
  CHECK(after.homeless_bytes() == 0);  // 450 slots are left for 400 chunks
  CHECK(after.kept_bytes(NodeId(1)) == 0);
  for (const uint32_t n : {0U, 2U, 3U}) {
    uint32_t most_lost = 0;
    uint32_t least_left = UINT32_MAX;
    for (uint32_t c = 0; c < kFiles; ++c) {
      const ChunkId chunk(c);
      const bool had = before.tier_at(NodeId(n), chunk) == Tier::nvme;
      const bool has = after.tier_at(NodeId(n), chunk) == Tier::nvme;
      if (had && !has) most_lost = std::max(most_lost, uses.uses(chunk, NodeId(n)));
      const bool copy = has && after.home(chunk)->node != NodeId(n);
      if (had && copy) least_left = std::min(least_left, uses.uses(chunk, NodeId(n)));
    }
    CHECK(most_lost > 0);
    CHECK(most_lost <= least_left);
  }
  // What a second death leaves homeless is what no longer fits.
  const PlacementMap two = after.without({false, true, false, true});
  CHECK(two.homeless_bytes() == (kFiles - 300) * 12288);
}

TEST_CASE("where there is free room no copy has to go; a dead node stays empty") {
  constexpr uint32_t kNodes = 3;
  const MadeUpJob job(std::vector<uint64_t>(300, 12288), 1 << 20, kNodes, 3, "seed=14 batch=4");
  const std::vector<NodeCapacity> capacities = {{150 * 12288, 0}, {150 * 12288, 0}, {1000 * 12288, 0}};
  const PlacementMap before = PlacementMap::make(*job.catalog, job.uses(), capacities);
  const PlacementMap after = before.without({false, true, false});
  CHECK(!before.copies(NodeId(0)).empty());
  CHECK(after.homeless_bytes() == 0);
  CHECK(after.kept_bytes(NodeId(0)) == before.kept_bytes(NodeId(0)));
  for (uint32_t c = 0; c < job.catalog->chunk_count(); ++c) {
    CHECK(before.tier_at(NodeId(0), ChunkId(c)) == after.tier_at(NodeId(0), ChunkId(c)));
  }
  const PlacementMap two = after.without({true, false, false});
  CHECK(two.homeless_bytes() == 0);
  CHECK(two.kept_bytes(NodeId(0)) + two.kept_bytes(NodeId(1)) == 0);
}

TEST_CASE("a job without uses, nodes without room, a dataset without files") {
  const MadeUpJob job({5000}, 1 << 20, 1, 1, "seed=1");
  const std::vector<NodeCapacity> room(1, {1 << 20, 1 << 20});
  const PlacementMap unused = PlacementMap::make(*job.catalog, JobUses(*job.catalog, 1), room);
  CHECK(!unused.home(ChunkId(0)));
  CHECK(unused.homeless_bytes() == 0);
  const PlacementMap nowhere = PlacementMap::make(*job.catalog, job.uses(), std::vector<NodeCapacity>(1));
  CHECK(!nowhere.home(ChunkId(0)));
  CHECK(nowhere.homeless_bytes() == 5000);
  CHECK(nowhere.prefill_order(NodeId(0)).empty());
  const MadeUpJob empty({0}, 1 << 20, 1, 1, "seed=1");
  CHECK(PlacementMap::make(*empty.catalog, empty.uses(), room).homeless_bytes() == 0);
}
