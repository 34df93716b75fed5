// Nodes that fetch from each other, with and without faults.

#include "tests/support/catch.h"
#include "tests/support/network/peer_nodes.h"

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
        const Priority priority = i % 3 == 0 ? Priority{} : Priority{Priority::Kind::prefetch, i};
        tally.acquire(nodes, n, ChunkId(order[i]), priority);
        if (i % 16 == 0) std::this_thread::sleep_for(1ms);  // real time, as the network's and the PFS's
      }
    });
  }
}

/// The same some times over, one after the other; everybody gets the right bytes.
void ask_in_passes(PeerNodes& nodes, Tally& tally, uint64_t passes, uint64_t seed = 0) {
  for (uint64_t pass = 0; pass < passes; ++pass) {
    everybody_asks_for_everything(nodes, tally, seed + pass);
    REQUIRE(tally.await_all());
  }
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
}

}  // namespace

TEST_CASE("each byte leaves the PFS once in a healthy job, and every byte is right") {
  NodesOptions options;
  options.nodes = GENERATE(2U, 4U, 8U);
  options.faults.most_delay = 2ms;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  Tally tally;
  ask_in_passes(nodes, tally, 3);
  CHECK(tally.from_peers > 0);
  CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
  for (size_t n = 0; n < nodes.size(); ++n) {
    INFO(nodes[n].log.text());
    CHECK(nodes[n].metrics.peers_late.value() == 0);
    CHECK(nodes[n].metrics.peers_not_here.value() == 0);
  }
}

TEST_CASE("each byte leaves the PFS once also while copies are not there yet") {
  NodesOptions options;
  options.nodes = 5;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes, 3));  // and only homes keep anything
  REQUIRE(nodes.await_serving());
  Tally tally;
  everybody_asks_for_everything(nodes, tally, 7);
  REQUIRE(tally.await_all());
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
  uint64_t not_here = 0;
  for (size_t n = 0; n < nodes.size(); ++n) not_here += nodes[n].metrics.peers_not_here.value();
  CHECK(not_here > 0);
}

TEST_CASE("what nodes have had since before homes moved does not leave the PFS again") {
  NodesOptions options;
  const bool kept = GENERATE(true, false);
  PeerNodes nodes(options);
  for (size_t n = 0; n < nodes.size() && !kept; ++n) nodes[n].policy.keep_nothing();
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  Tally tally;
  ask_in_passes(nodes, tally, 1);
  nodes.set_homes([&](ChunkId chunk) { return std::vector{NodeId((chunk.value + 1) % options.nodes)}; });
  const auto not_here = [&] {
    uint64_t sum = 0;
    for (size_t n = 0; n < nodes.size(); ++n) sum += nodes[n].metrics.peers_not_here.value();
    return sum;
  };
  ask_in_passes(nodes, tally, 2, 5);
  const uint64_t asked_in_vain = not_here();
  ask_in_passes(nodes, tally, 1, 9);
  CHECK(not_here() == asked_in_vain);
  if (kept) {
    CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
    CHECK(asked_in_vain == 0);
  }
}

TEST_CASE("of a chunk that lives elsewhere only the part that is wanted is asked for") {
  constexpr uint64_t kRecord = 8192;
  NodesOptions options;
  options.files = 3;
  options.least_bytes = options.most_bytes = 100 * kRecord;
  options.chunk_size = 256 << 10;
  options.record_chunks = {{"f10001", 64 << 10}};
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  Tally tally;
  uint64_t elsewhere = 0;  // records times nodes that are not their home
  for (uint32_t f = 0; f < options.files; ++f) {
    const FileId file = *nodes.catalog->find("f" + std::to_string(10000 + f));
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (uint64_t record = 0; record < 100; ++record) {
        tally.acquire_range(nodes, n, file, record * kRecord, kRecord);
        if (nodes.catalog->chunk_at(file, record * kRecord).value % nodes.size() != n) ++elsewhere;
      }
    }
  }
  REQUIRE(tally.await_all());
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  CHECK(tally.from_peers == elsewhere);
  CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
  uint64_t bytes_in = 0;
  for (size_t n = 0; n < nodes.size(); ++n) bytes_in += nodes[n].metrics.peers_bytes_in.value();
  CHECK(bytes_in == elsewhere * kRecord);
}

TEST_CASE("the rest of a chunk and fills, which wait for all else, tell nothing of the PFS") {
  NodesOptions options;
  options.nodes = 2;
  options.files = 1;
  PeerNodes nodes(options);
  RoutedSource& routed = nodes[0].routed;
  std::vector<char> memory(1000);
  AwaitedCount read;
  const auto fetch = [&](bool rest, Priority priority = {}) {
    const uint64_t before = read.value();
    FetchRequest request;
    request.file = *nodes.catalog->find("f10000");
    request.length = memory.size();
    request.memory.push_back({memory.data(), memory.size()});
    request.demand = std::make_shared<Demand>(priority);
    request.done = [&read](const Fetched& outcome) {
      if (outcome) read.raise();
    };
    request.rest = rest;
    routed.start(std::move(request));
    REQUIRE(read.reaches(before + 1));
  };
  const Duration expected = routed.pfs_latency();  // as long as nothing is known
  fetch(true);
  CHECK(routed.pfs_latency() == expected);
  fetch(false, {Priority::Kind::background, 0});
  CHECK(routed.pfs_latency() == expected);
  fetch(false);
  CHECK(routed.pfs_latency() != expected);
}

TEST_CASE("who asks for bytes that no chunk has is refused") {
  NodesOptions options;
  options.nodes = 2;
  options.files = 1;
  options.least_bytes = options.most_bytes = 100'000;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  const uint32_t last = nodes.catalog->chunk_count() - 1;
  const uint32_t length = nodes.catalog->range(ChunkId(last)).length;
  wire::ChunkRequests requests;
  for (const auto& [chunk, offset, bytes] : {std::tuple{last, 0U, length + 1},
                                             {last, length, 1U},
                                             {last, length - 1, 2U},
                                             {last, 1U, kMost},
                                             {last, kMost, kMost},
                                             {last, kMost, 1U},
                                             {last + 1, 0U, 1U},
                                             {kMost, 0U, 1U}}) {
    const auto id = static_cast<uint32_t>(requests.list.size());
    requests.list.push_back({id, ChunkId(chunk), offset, bytes, 0, {}, true});
  }
  REQUIRE(nodes.network.endpoint(NodeId(0)).send(NodeId(1), wire::encode(requests)));
  CHECK(nodes.network.points().wait_until(
      [&] { return nodes[1].metrics.peers_refused.value() == requests.list.size(); }));
  CHECK(nodes[1].metrics.peers_bytes_out.value() == 0);
  CHECK(nodes.total_pfs_bytes() == 0);
}

TEST_CASE("chunks are served from NVMe, and nodes that all do so do not block each other") {
  NodesOptions options;
  options.nodes = 4;
  options.files = 400;
  options.ram = 0;
  options.nvme = 256 << 20;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  // The homes take in what is theirs, at a pace that their disks follow.
  Tally tally;
  for (uint32_t c = 0; c < nodes.catalog->chunk_count(); ++c) {
    const size_t home = c % nodes.size();
    tally.acquire(nodes, home, ChunkId(c));
    REQUIRE(eventually([&] { return nodes[home].cache->tier_of(ChunkId(c)) == Tier::nvme; }));
  }
  CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
  ask_in_passes(nodes, tally, 2);
  CHECK(nodes.total_pfs_bytes() == nodes.catalog->total_bytes());
  CHECK(tally.from_peers > nodes.catalog->chunk_count());
}

TEST_CASE("every fetch ends once and with the right bytes, whatever the network does") {
  NodesOptions options;
  options.impatient();
  options.nodes = GENERATE(2U, 5U);
  options.seed = GENERATE(1U, 2U, 3U);
  options.faults = {0ms, 5ms, 0.02, 0.02, 0.02, 0, 0.02};
  options.client.most_wait = 500ms;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes, 1));
  REQUIRE(nodes.await_serving());
  Tally tally;
  ask_in_passes(nodes, tally, 2, options.seed);
  CHECK(tally.from_peers > 0);
}

TEST_CASE("nodes that die and hang cost others time, not data") {
  NodesOptions options;
  options.impatient();
  options.nodes = 5;
  options.seed = GENERATE(11U, 12U, 13U);
  options.faults.most_delay = 2ms;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes, 1));
  REQUIRE(nodes.await_serving());
  Tally tally;
  Tally of_the_dead;
  std::atomic<bool> done{false};
  // Real time is the subject: nodes stand still for more and for less than makes them late.
  std::jthread fate([&] {
    std::mt19937_64 random(options.seed);
    std::this_thread::sleep_for(20ms);
    nodes.network.kill(NodeId(4));
    while (!done) {
      const NodeId victim(static_cast<uint32_t>(random() % 3));  // node 3 is always well
      nodes.network.hang(victim);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 700));
      nodes.network.wake(victim);
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 300));
    }
  });
  for (int pass = 0; pass < 6; ++pass) {
    std::vector<std::jthread> readers;
    for (size_t n = 0; n < nodes.size(); ++n) {
      readers.emplace_back([&, n, pass] {
        std::mt19937_64 random(static_cast<uint64_t>(pass) * 10 + n);
        for (int i = 0; i < 150; ++i) {
          (n == 4 ? of_the_dead : tally)
              .acquire(nodes, n, ChunkId(static_cast<uint32_t>(random() % nodes.catalog->chunk_count())));
          std::this_thread::sleep_for(1ms);
        }
      });
    }
  }
  CHECK(tally.await_all());
  CHECK(of_the_dead.await_all());
  done = true;
  fate.join();
  for (uint32_t i = 0; i < 3; ++i) nodes.network.wake(NodeId(i));
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  CHECK(of_the_dead.wrong == 0);
  // Those who slept are taken back; the dead one is not.
  CHECK(nodes.network.points().wait_until([&] {
    for (size_t n = 0; n < 4; ++n) {
      const auto peers = nodes[n].job->nodes();
      for (uint32_t other = 0; other < 4; ++other) {
        if (other != n && !peers[other].serves) return false;
      }
      if (peers[4].state != PeerState::dead) return false;
    }
    return true;
  }));
}

TEST_CASE("memory that the network keeps is never used again") {
  NodesOptions options;
  options.impatient();
  options.nodes = 3;
  options.files = 200;
  options.ram = 0;  // all through transit memory, so that it would be used again at once
  options.faults.stuck_transfer = 0.02;
  options.client.most_wait = 300ms;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  Tally tally;
  ask_in_passes(nodes, tally, 3);
  uint64_t late = 0;
  for (size_t n = 0; n < nodes.size(); ++n) late += nodes[n].metrics.peers_late.value();
  CHECK(late > 0);
}

TEST_CASE("nodes that all fetch through very little memory do not wait for each other in a circle") {
  NodesOptions options;  // patient: only requests in a circle are late, after a minute
  options.nodes = 4;
  options.files = 30;
  options.least_bytes = 100 << 10;
  options.most_bytes = 8 << 20;
  options.chunk_size = 4 << 20;  // transit memory of eight chunks
  options.ram = 0;
  options.pfs_delay = 1ms;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  Tally tally;
  std::vector<std::jthread> readers;
  for (size_t n = 0; n < nodes.size(); ++n) {
    readers.emplace_back([&, n] {
      for (uint32_t c = 0; c < nodes.catalog->chunk_count(); ++c)
        tally.acquire(nodes, n, ChunkId(c), {Priority::Kind::prefetch, c});
    });
  }
  readers.clear();
  CHECK(tally.await_all());
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  for (size_t n = 0; n < nodes.size(); ++n) CHECK(nodes[n].metrics.peers_late.value() == 0);
}

TEST_CASE("a node whose PFS hangs costs one wait, and reads it for nobody until it is well") {
  NodesOptions options;  // patient: without that node's word each reader would wait for a minute
  options.nodes = 2;
  options.files = 2000;  // more than memory holds of what is not kept: each is asked for anew
  options.client.probe_after = 20ms;
  options.client.most_stall = 300ms;
  options.client.leave_alone = 10min;  // it ends with the node's word, not before
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  nodes[1].source.hold(true);
  Tally tally;
  tally.acquire(nodes, 0, ChunkId(1));
  CHECK(tally.await_all());
  CHECK(nodes[0].metrics.peers_late.value() == 1);
  for (uint32_t chunk = 3; chunk < 33; chunk += 2) tally.acquire(nodes, 0, ChunkId(chunk));
  CHECK(tally.await_all());
  uint64_t asked = 0;
  for (const uint64_t bytes : nodes[1].source.bytes_of_files()) asked += bytes;
  CHECK(asked == nodes.catalog->range(ChunkId(1)).length);
  CHECK(tally.from_peers == 0);
  nodes[1].source.hold(false);
  uint32_t chunk = 33;  // each file has one at least
  CHECK(eventually([&] {
    tally.acquire(nodes, 0, ChunkId(chunk));
    chunk = chunk < options.files - 1 ? chunk + 2 : 33;
    return tally.from_peers > 0;
  }));
  CHECK(tally.await_all());
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
}

TEST_CASE("a node whose PFS hangs goes on serving what it has in memory") {
  NodesOptions options;
  options.nodes = 2;
  options.files = 100;
  options.client.probe_after = 20ms;
  options.client.most_stall = 300ms;
  options.client.leave_alone = 10min;
  PeerNodes nodes(options);
  nodes.set_homes(modulo_homes(options.nodes));
  REQUIRE(nodes.await_serving());
  Tally tally;
  for (uint32_t chunk = 1; chunk < 41; chunk += 2) tally.acquire(nodes, 1, ChunkId(chunk));
  REQUIRE(tally.await_all());
  nodes[1].source.hold(true);
  tally.acquire(nodes, 0, ChunkId(41));  // each file has one at least
  CHECK(tally.await_all());
  CHECK(nodes[0].metrics.peers_late.value() == 1);
  for (uint32_t chunk = 1; chunk < 41; chunk += 2) tally.acquire(nodes, 0, ChunkId(chunk));
  CHECK(tally.await_all());
  CHECK(tally.from_peers > 0);
  CHECK(tally.failed == 0);
  CHECK(tally.wrong == 0);
  nodes[1].source.hold(false);
}
