// What is needed sooner goes before what only fills tiers, also at another node.

#include "tests/support/catch.h"
#include "tests/support/network/peer_nodes.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kFileBytes = 60000;

/// Two nodes; files have one chunk each, and odd chunks have their homes on the second, whose PFS is held.
struct TwoNodes {
  explicit TwoNodes(NodesOptions options = {}) : nodes(with_small_files(options)) {
    nodes.set_homes(modulo_homes(2));
    REQUIRE(nodes.await_serving());
    pfs().hold(true);
  }
  ~TwoNodes() { pfs().hold(false); }

  static NodesOptions with_small_files(NodesOptions options) {
    options.nodes = 2;
    options.files = 200;
    options.least_bytes = options.most_bytes = kFileBytes;
    return options;
  }
  SlowSource& pfs() { return nodes[1].source; }
  void ask(uint32_t chunk, Priority priority) { tally.acquire(nodes, 0, ChunkId(chunk), priority); }
  std::optional<Priority> priority_of(uint32_t chunk) {
    return pfs().priority_of(nodes.catalog->range(ChunkId(chunk)).file);
  }
  /// It is asked of the PFS for that, sooner or later.
  bool comes_to_be(uint32_t chunk, Priority::Kind kind) {
    return nodes.network.points().wait_until([&] {
      const auto priority = priority_of(chunk);
      return priority && priority->kind == kind;
    });
  }
  uint64_t bytes_asked() {
    uint64_t sum = 0;
    for (const uint64_t bytes : pfs().bytes_of_files()) sum += bytes;
    return sum;
  }
  void require_all_answered() {
    pfs().hold(false);
    REQUIRE(tally.await_all());
    CHECK(tally.failed == 0);
    CHECK(tally.wrong == 0);
  }

  Tally tally;
  PeerNodes nodes;
};

}  // namespace

TEST_CASE("a fill becomes a prefetch and then a waiting reader's at its home, too") {
  TwoNodes two;
  two.ask(1, {Priority::Kind::background, 7});
  REQUIRE(two.comes_to_be(1, Priority::Kind::background));
  const uint64_t later = deadline_at(two.nodes[0].clock.now() + 1h);
  two.ask(1, {Priority::Kind::prefetch, later});
  REQUIRE(two.comes_to_be(1, Priority::Kind::prefetch));
  // Of this node's clock, which is the same here: what is left of the hour.
  CHECK(two.priority_of(1)->deadline > later - 60'000'000);
  CHECK(two.priority_of(1)->deadline < later + 60'000'000);
  two.ask(1, {});
  REQUIRE(two.comes_to_be(1, Priority::Kind::demand));
  two.require_all_answered();
  CHECK(two.bytes_asked() == kFileBytes);
}

TEST_CASE("fills leave credit, requests and the home's loads to prefetches") {
  NodesOptions options;
  // Whichever of the three would be used up.
  const int used_up = GENERATE(0, 1, 2);
  if (used_up == 0) options.client.credit = 1 << 20;
  if (used_up == 1) options.client.most_requests = 16;
  if (used_up == 2) options.server.loading = 1 << 20;
  TwoNodes two(options);
  for (uint32_t chunk = 1; chunk < 100; chunk += 2) two.ask(chunk, {Priority::Kind::background, chunk});
  REQUIRE(two.comes_to_be(1, Priority::Kind::background));
  for (uint32_t chunk = 101; chunk < 109; chunk += 2) {
    two.ask(chunk, {Priority::Kind::prefetch, chunk});
    CHECK(two.comes_to_be(chunk, Priority::Kind::prefetch));
  }
  // One part in eight of a MiB for fills, and the four.
  CHECK(two.bytes_asked() <= (1 << 17) + 4 * kFileBytes);
  two.require_all_answered();
}

TEST_CASE("fills go on beside prefetches") {
  NodesOptions options;
  options.client.credit = options.server.loading = 1 << 20;
  TwoNodes two(options);
  for (uint32_t chunk = 101; chunk < 121; chunk += 2) two.ask(chunk, {Priority::Kind::prefetch, chunk});
  REQUIRE(two.comes_to_be(119, Priority::Kind::prefetch));
  for (uint32_t chunk = 1; chunk < 100; chunk += 2) two.ask(chunk, {Priority::Kind::background, chunk});
  CHECK(two.comes_to_be(3, Priority::Kind::background));  // two are an eighth
  CHECK(!two.priority_of(5));
  two.ask(1, {Priority::Kind::prefetch, 1});  // it leaves the fills' share to another one
  CHECK(two.comes_to_be(5, Priority::Kind::background));
  two.require_all_answered();
}

TEST_CASE("a fill that waits for credit gets a prefetch's when it becomes one") {
  NodesOptions options;
  options.client.credit = 1 << 20;
  TwoNodes two(options);
  for (uint32_t chunk = 1; chunk < 100; chunk += 2) two.ask(chunk, {Priority::Kind::background, chunk});
  REQUIRE(two.comes_to_be(1, Priority::Kind::background));
  REQUIRE(!two.priority_of(99));
  two.ask(99, {Priority::Kind::prefetch, 1});
  CHECK(two.comes_to_be(99, Priority::Kind::prefetch));
  two.require_all_answered();
}
