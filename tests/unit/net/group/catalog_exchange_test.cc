// Who gives the catalog to whom, and what becomes of those whose giver is gone, silent or wrong.
#include "net/group/catalog_exchange.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <future>

#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "net/job.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/moved_clock.h"
#include "tests/support/network/recorded_transport.h"
#include "tests/support/network/virtual_network.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kCatalogPiece = 1000;

CatalogExchangeOptions in_pieces(uint32_t piece) {
  CatalogExchangeOptions options;
  options.piece = piece;
  return options;
}

std::shared_ptr<const Catalog> made_up_catalog(const std::string& prefix = "f") {
  CatalogBuilder builder("/data", 64 << 10, 200);
  SourceAttributes folder;
  folder.mode = S_IFDIR | 0755;
  SourceAttributes file;
  file.mode = S_IFREG | 0644;
  file.size = 100;
  builder.add(FileId(0), "", folder);
  for (int i = 1; i < 200; ++i) builder.add(FileId(0), prefix + std::to_string(1000 + i), file);
  return *builder.finish(0, 0);
}

/// A node of the tree that gets and gives; what the others do is the test's.
struct Exchanging {
  explicit Exchanging(uint32_t self, uint32_t nodes = 32) : transport(NodeId(self), nodes), numbers(nodes) {}
  /// Whom it asks, since the last call.
  std::vector<NodeId> asks() {
    std::vector<NodeId> givers;
    for (const auto& [to, message] : transport.take_all()) {
      if (std::holds_alternative<wire::CatalogRequest>(message)) givers.push_back(to);
    }
    return givers;
  }
  void pass(Duration duration) {
    const TimePoint end = clock.time + duration;
    while (clock.time < end) {
      clock.time += 100ms;
      exchange.tick(clock.time);
    }
  }

  RecordedTransport transport;
  TransferNumbers numbers;
  MovedClock clock;
  CapturedLog log;
  Metrics metrics;
  Membership membership{{transport, clock, metrics, log.logger(), [] { return wire::Hello{}; },
                         [](NodeId, PeerState, PeerState) {}},
                        {}};
  CatalogExchange exchange{{transport, numbers, membership, clock}, in_pieces(kCatalogPiece)};
};

using Asked = std::vector<NodeId>;
Asked three_times(uint32_t rank) {
  return Asked(3, NodeId(rank));
}

/// A node of a whole job.
struct InJob {
  InJob(VirtualNetwork& network, uint32_t rank)
      : job({network.endpoint(NodeId(rank)), network.clock(), metrics, log.logger()}, options(),
            [](const std::string&) {}) {}
  ~InJob() { job.stop({}); }
  static JobOptions options() {
    JobOptions options;
    options.chunk_size = 64 << 10;
    options.catalog.piece = kCatalogPiece;
    return options;
  }
  CapturedLog log;
  Metrics metrics;
  Job job;
};

struct InJobs {
  explicit InJobs(uint32_t count) : network(count) {
    for (uint32_t rank = 0; rank < count; ++rank) nodes.push_back(std::make_unique<InJob>(network, rank));
  }
  /// Until those have every byte of the catalog.
  bool get_it(const std::vector<uint32_t>& ranks, Duration most) {
    return network.run_until(
        [&] {
          return std::all_of(ranks.begin(), ranks.end(), [&](uint32_t rank) {
            return network.bulk_bytes_received(NodeId(rank)) >= catalog->image().size();
          });
        },
        most);
  }
  uint64_t identity_at(uint32_t rank) {
    const auto got = nodes[rank]->job.await_catalog([](uint64_t) {});
    return got ? (*got)->identity() : 0;
  }

  const std::shared_ptr<const Catalog> catalog = made_up_catalog();
  VirtualNetwork network;
  std::vector<std::unique_ptr<InJob>> nodes;
};

}  // namespace

TEST_CASE("a node whose catalog is offered and never comes gives up, and asks for nothing more") {
  Exchanging node(1, 2);
  RecordedTransport& transport = node.transport;
  CatalogExchange& exchange = node.exchange;
  const wire::CatalogOffer offer{10 << 20, 1};
  exchange.on_offer(NodeId(0), offer);
  CHECK(transport.take_sent<wire::CatalogRequest>().size() == 3);
  int looks = 0;
  const auto got = exchange.await([&](uint64_t) {
    node.clock.time += 4min;
    exchange.on_offer(NodeId(0), offer);  // with every hello
    exchange.tick(node.clock.time);
    if (++looks == 20) exchange.fail(Error{ECANCELED, "it waits for ever"});
  });
  REQUIRE(!got);
  CHECK(got.error().code == ETIMEDOUT);
  transport.end(Error{ECANCELED, "cancelled"});
  CHECK(!transport.take_cancelled().empty());
  (void)transport.take_sent<wire::CatalogRequest>();
  exchange.on_offer(NodeId(0), offer);
  exchange.tick(node.clock.time + 1h);
  CHECK(transport.take_sent<wire::CatalogRequest>().empty());
  CHECK(transport.memory().empty());
}

TEST_CASE("a catalog that is offered and does not fit into memory is refused, and not asked for") {
  Exchanging node(1, 2);
  CatalogExchangeOptions options = in_pieces(kCatalogPiece);
  options.most_memory = 10 * kCatalogPiece - 1;
  CatalogExchange exchange({node.transport, node.numbers, node.membership, node.clock}, options);
  exchange.on_offer(NodeId(0), {10 * kCatalogPiece, 1});
  CHECK(node.asks().empty());
  const auto got = exchange.await([](uint64_t) {});
  REQUIRE(!got);
  CHECK(got.error().code == ENOMEM);
  CHECK(got.error().message.find("node 0 offers") != std::string::npos);
  exchange.tick(node.clock.time + 1h);
  CHECK(node.asks().empty());
}

TEST_CASE("the nodes are a tree with two branches, in which all givers have lower ranks") {
  std::vector<uint32_t> asked_by(1024);
  for (uint32_t rank = 1; rank < 1024; ++rank) {
    const NodeId giver = CatalogExchange::giver_of(NodeId(rank));
    REQUIRE(giver.value < rank);
    REQUIRE(++asked_by[giver.value] <= 2);
  }
}

TEST_CASE("a node passes on the pieces that it has, and the others as soon as they come") {
  Exchanging node(1);
  node.exchange.on_request(NodeId(3), {0, kCatalogPiece, 70});  // before the offer is here
  node.exchange.on_offer(NodeId(0), {10 * kCatalogPiece, 1});
  CHECK(node.asks() == three_times(0));
  node.exchange.on_request(NodeId(4), {kCatalogPiece, kCatalogPiece, 80});
  node.exchange.on_request(NodeId(4), {5 * kCatalogPiece, kCatalogPiece, 81});
  node.pass(1s);
  CHECK(node.transport.take_bulks().empty());
  node.transport.end({});  // the first three pieces
  CHECK(node.transport.take_bulks() == std::vector<TransferNumber>{70, 80});
  node.exchange.on_request(NodeId(3), {2 * kCatalogPiece, kCatalogPiece, 71});
  node.exchange.on_request(NodeId(4), {kCatalogPiece, kCatalogPiece, 80});  // repeated
  CHECK(node.transport.take_bulks() == std::vector<TransferNumber>{71});
  node.transport.end({});
  CHECK(node.transport.take_bulks() == std::vector<TransferNumber>{81});
}

TEST_CASE("who is asked again for what it waits for itself says so, unless it has given up") {
  Exchanging node(1);
  node.exchange.on_offer(NodeId(0), {10 * kCatalogPiece, 1});
  node.exchange.on_request(NodeId(3), {0, kCatalogPiece, 70});
  CHECK(node.transport.take_sent<wire::CatalogProgress>().empty());
  node.exchange.on_request(NodeId(3), {0, kCatalogPiece, 70});
  CHECK(node.transport.take_sent<wire::CatalogProgress>().size() == 1);
  node.exchange.fail(Error{ECONNABORTED, "node 0 is gone"});
  node.exchange.on_request(NodeId(3), {0, kCatalogPiece, 70});
  CHECK(node.transport.take_sent<wire::CatalogProgress>().empty());
}

TEST_CASE("who hears nothing from its giver turns to the one above that, then to node 0") {
  Exchanging node(12);
  node.exchange.on_offer(NodeId(0), {10 * kCatalogPiece, 1});
  CHECK(node.asks() == three_times(5));
  for (int i = 0; i < 10; ++i) {  // it waits, too
    node.pass(1s);
    node.exchange.on_progress(NodeId(5), {});
    node.exchange.on_progress(NodeId(2), {});  // nobody has asked
  }
  CHECK(std::ranges::count(node.asks(), NodeId(5)) > 3);
  node.pass(4900ms);
  CHECK(std::ranges::count(node.asks(), NodeId(2)) == 0);
  node.pass(200ms);
  CHECK(node.transport.take_cancelled().size() == 3);
  CHECK(std::ranges::count(node.asks(), NodeId(2)) == 3);
  node.pass(5100ms);
  CHECK(std::ranges::count(node.asks(), NodeId(0)) == 3);
  node.pass(10s);
  const auto asked = node.asks();
  CHECK(std::ranges::count(asked, NodeId(0)) == std::ssize(asked));
}

TEST_CASE("nobody waits for a giver that is gone, or whose network does not let go of a piece") {
  Exchanging node(6);
  node.membership.on_hello(NodeId(2), {});
  node.exchange.on_offer(NodeId(0), {10 * kCatalogPiece, 1});
  CHECK(node.asks() == three_times(2));
  SECTION("it leaves") {
    node.membership.on_goodbye(NodeId(2), "");
  }
  SECTION("it does not answer") {
    node.membership.suspect(NodeId(2), 3s);
  }
  SECTION("memory is lost") {
    node.transport.end(Error{EBUSY, "cancelled"});
  }
  node.pass(100ms);
  CHECK(node.asks() == three_times(0));
}

TEST_CASE("a damaged image, or another one than was offered, is fetched again from node 0") {
  const auto offered = made_up_catalog();
  const auto other = made_up_catalog("g");
  REQUIRE(offered->image().size() == other->image().size());
  const bool damaged = GENERATE(true, false);
  Exchanging node(6);
  const auto fill = [&](std::vector<std::byte> image) {
    while (!node.transport.memory().empty()) {
      for (const iovec& memory : node.transport.memory()) {
        std::memcpy(memory.iov_base, image.data(), memory.iov_len);
        image.erase(image.begin(), image.begin() + static_cast<ptrdiff_t>(memory.iov_len));
      }
      node.transport.end({});
    }
  };
  node.exchange.on_offer(NodeId(0), {offered->image().size(), offered->identity()});
  CHECK(node.asks() == three_times(2));
  auto first = damaged ? offered->serialize() : other->serialize();
  if (damaged) first[first.size() / 2] ^= std::byte{1};
  fill(first);
  (void)node.asks();
  auto waiting = std::async(std::launch::async, [&] { return node.exchange.await([](uint64_t) {}); });
  Asked anew;
  while (anew.size() < 3 && waiting.wait_for(1ms) != std::future_status::ready) {
    for (const NodeId giver : node.asks()) anew.push_back(giver);
  }
  CHECK(anew == three_times(0));
  fill(offered->serialize());
  const auto got = waiting.get();
  REQUIRE(got);
  CHECK((*got)->identity() == offered->identity());
  node.exchange.on_request(NodeId(13), {0, kCatalogPiece, 70});  // it has it for the others, too
  CHECK(node.transport.take_bulks().size() == 1);
}

TEST_CASE("all nodes of a job get the catalog, and none sends it more than twice") {
  InJobs job(40);
  job.nodes[0]->job.publish_catalog(job.catalog);
  std::vector<uint32_t> others;
  for (uint32_t rank = 1; rank < 40; ++rank) others.push_back(rank);
  REQUIRE(job.get_it(others, 10s));
  for (const uint32_t rank : others) CHECK(job.identity_at(rank) == job.catalog->identity());
  for (uint32_t rank = 0; rank < 40; ++rank)
    CHECK(job.network.sent(NodeId(rank)).bulk_bytes <= 2 * job.catalog->image().size());
}

TEST_CASE("a node that dies or stands still while it passes the catalog on keeps nobody from it") {
  InJobs job(40);
  job.network.run_for(1s);
  const bool dies = GENERATE(true, false);
  for (const uint32_t rank : {1U, 5U, 11U}) {  // 11 is below 5, which is below 2
    if (dies) job.network.kill(NodeId(rank));
    if (!dies) job.network.hang(NodeId(rank));
  }
  job.nodes[0]->job.publish_catalog(job.catalog);
  std::vector<uint32_t> others;
  for (uint32_t rank = 2; rank < 40; ++rank) {
    if (rank != 5 && rank != 11) others.push_back(rank);
  }
  CHECK(job.get_it(others, 30s));
  for (const uint32_t rank : others) CHECK(job.identity_at(rank) == job.catalog->identity());
  if (dies) return;
  for (const uint32_t rank : {1U, 5U, 11U}) job.network.wake(NodeId(rank));
  CHECK(job.get_it({1, 5, 11}, 30s));
}
