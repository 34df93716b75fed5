// Nodes that fetch from each other, with and without faults.
#include <catch2/catch.hpp>

#include "tests/support/peer_nodes.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// Each node asks for every chunk, in an order of its own.
void everybody_asks_for_everything(PeerNodes& nodes, Tally& tally, uint64_t seed) {
  std::vector<std::jthread> readers;
  for (size_t n = 0; n < nodes.size(); ++n) {
    readers.emplace_back([&, n] {
      std::vector<uint32_t> order(nodes.catalog->chunk_count());
      for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), std::mt19937_64(seed + n));
      for (size_t i = 0; i < order.size(); ++i) {
        const Urgency urgency = i % 3 == 0 ? Urgency{} : Urgency{Urgency::Kind::prefetch, i};
        tally.acquire(nodes, n, ChunkId(order[i]), urgency);
        if (i % 16 == 0) std::this_thread::sleep_for(1ms);
      }
    });
  }
}

}  // namespace

TEST_CASE("each byte leaves the PFS once in a healthy job, and every byte is right") {
  NodesOptions options;
  options.nodes = GENERATE(2U, 4U, 8U);
  options.faults.most_delay = 2ms;
  PeerNodes nodes(options);
  nodes.set_homes(std::make_shared<ModuloHomes>(options.nodes));
  REQUIRE(eventually([&] { return nodes.all_serve(); }));
  Tally tally;
  for (int pass = 0; pass < 3; ++pass) {
    everybody_asks_for_everything(nodes, tally, static_cast<uint64_t>(pass));
    REQUIRE(eventually([&] { return tally.all_answered(); }));
  }
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  CHECK(tally.from_peers > 0);
  CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
  for (size_t n = 0; n < nodes.size(); ++n) {
    CHECK(nodes[n].metrics.peers_late.value() == 0);
    CHECK(nodes[n].metrics.peers_not_here.value() == 0);
  }
}
