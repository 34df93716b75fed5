// What a home serves, and what it says of its PFS, by a clock that the test moves.
#include "net/peers/server.h"

#include "cache/catalog/chunk_key.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/fake_source.h"
#include "tests/support/fake_store.h"
#include "tests/support/made_up_catalog.h"
#include "tests/support/moved_clock.h"
#include "tests/support/network/recorded_transport.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr NodeId kAsker{1};

/// Of one file each.
std::shared_ptr<const Catalog> three_chunks() {
  return made_up_catalog({1000, 1000, 4'000'000});
}

/// Node 0, the home of all chunks, whose PFS brings them when it is told to.
struct Serving {
  /// With a store: its files are to be compared before the first use of what it has of them.
  explicit Serving(const PeerServerOptions& options = {}, NvmeStore* store = nullptr,
                   std::shared_ptr<const Catalog> of = three_chunks())
      : catalog(std::move(of)) {
    ChunkCache::Deps deps{*catalog, source, {}, policy, metrics, log.logger(), store != nullptr};
    if (store != nullptr) deps.stores.push_back(store);
    cache = std::move(*ChunkCache::create(deps, 16 << 20));
    server = std::make_unique<PeerServer>(PeerServer::Deps{transport, *cache, *catalog, membership, clock,
                                                           metrics, [](ChunkId) { return true; }},
                                          options);
  }
  ~Serving() {
    server->stop();
    CHECK(cache->stop(1min));
  }

  /// Node 1 asks for the first byte of a chunk, under the chunk's number.
  void ask(uint32_t chunk, Priority priority = {}, bool only_here = false) {
    wire::ChunkRequests requests;
    requests.list.push_back({chunk, ChunkId(chunk), 0, 1, chunk, priority, true, only_here});
    server->on_requests(kAsker, requests);
  }
  /// It asks for a piece of chunk 0, under the number of its first byte.
  void ask_for_piece(const ChunkPiece& piece, Priority priority, bool only_here = false) {
    const auto begin = static_cast<uint32_t>(piece.begin);
    const auto length = static_cast<uint32_t>(piece.end - piece.begin);
    wire::ChunkRequests requests;
    requests.list.push_back({begin, ChunkId(0), begin, length, begin, priority, true, only_here});
    server->on_requests(kAsker, requests);
  }
  /// Brings a chunk into memory.
  void load(uint32_t chunk) {
    cache->acquire(ChunkId(chunk), {}, [](const Result<AcquiredChunk>&) {});
    REQUIRE(source.complete_one());
  }
  /// What node 1 is told when it asks.
  uint32_t stalled_ms() {
    server->on_probe(kAsker, {});
    const auto answers = transport.take_sent<wire::ProbeAnswer>();
    REQUIRE(answers.size() == 1);
    return answers[0].stalled_ms;
  }

  RecordedTransport transport{NodeId(0), 2};
  MovedClock clock;
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  const std::shared_ptr<const Catalog> catalog;
  Membership membership{{transport, clock, metrics, log.logger(), [] { return wire::Hello{}; },
                         [](NodeId, PeerState, PeerState) {}},
                        {}};
  std::unique_ptr<ChunkCache> cache;
  std::unique_ptr<PeerServer> server;
};

}  // namespace

TEST_CASE("a home says for how long a reader waits while its PFS brings nothing for anybody") {
  Serving home;
  CHECK(home.stalled_ms() == 0);
  home.ask(0);
  home.clock.time += 6s;
  CHECK(home.stalled_ms() == 6000);
  home.ask(1);
  REQUIRE(home.source.complete_at(1));
  CHECK(home.stalled_ms() == 0);
  home.clock.time += 2s;
  CHECK(home.stalled_ms() == 2000);
  REQUIRE(home.source.complete_one());
  home.clock.time += 10s;
  CHECK(home.stalled_ms() == 0);
}

TEST_CASE("of what no reader waits for a home says nothing, and a large chunk may take its time") {
  Serving home;
  home.ask(2, {Priority::Kind::prefetch, 1'000'000});
  home.clock.time += 60s;
  CHECK(home.stalled_ms() == 0);
  home.server->on_reprioritize(kAsker, wire::Reprioritize{Priority{}, {2}});
  home.clock.time += 6s;
  CHECK(home.stalled_ms() == 5800);  // 4 MB at 20 MB/s
}

TEST_CASE("a PFS that brings something for a home's own readers does not hang") {
  Serving home;
  home.ask(0);
  home.clock.time += 6s;
  home.metrics.pfs_latency.record(1ms);
  CHECK(home.stalled_ms() == 0);
  home.clock.time += 3s;
  CHECK(home.stalled_ms() == 3000);
}

TEST_CASE("who asks only for what is here gets it, or a refusal at once, while the PFS hangs") {
  using Answer = wire::ChunkReply::Status;
  Serving home;
  home.load(0);
  home.ask(1);
  home.clock.time += 6s;
  home.ask(0, {}, true);
  home.ask(2, {}, true);
  const auto replies = home.transport.take_sent<wire::ChunkReplies>();
  REQUIRE(replies.size() == 2);
  CHECK(replies[0].list[0].status == Answer::ok);
  CHECK(replies[1].list[0].id == 2);
  CHECK(replies[1].list[0].status == Answer::not_here);
  CHECK(home.transport.take_bulks() == std::vector<TransferNumber>{0});
  CHECK(home.source.fetches == 2);
  CHECK(home.stalled_ms() == 6000);
}

TEST_CASE("what lies on NVMe is not here before its file was compared with the PFS") {
  using Answer = wire::ChunkReply::Status;
  FakeStore store(16 << 20);
  std::string bytes(1000, 'x');
  store.write(chunk_key(*three_chunks(), ChunkId(0)), {{bytes.data(), bytes.size()}}, 1000, 0,
              [](const Status&) {});
  store.settle();
  Serving home({}, &store);
  REQUIRE(home.cache->tier_of(ChunkId(0)) == Tier::nvme);
  home.ask(0, {}, true);
  home.ask(0);
  REQUIRE(home.source.complete_one());  // it is compared
  store.settle();
  const auto replies = home.transport.take_sent<wire::ChunkReplies>();
  REQUIRE(replies.size() == 2);
  CHECK(replies[0].list[0].status == Answer::not_here);
  CHECK(replies[1].list[0].status == Answer::ok);
  CHECK(home.source.bytes == 0);
}

TEST_CASE("what the PFS does not bring takes no room of what is in memory") {
  PeerServerOptions options;
  options.sending = 1;  // and one more that is read from the PFS
  Serving home(options);
  home.load(0);
  home.ask(1);
  home.ask(2);
  REQUIRE(home.source.pending() == 2);
  home.ask(0);
  CHECK(home.transport.take_bulks() == std::vector<TransferNumber>{0});
  const auto replies = home.transport.take_sent<wire::ChunkReplies>();
  REQUIRE(replies.size() == 1);
  CHECK(replies[0].list[0].status == wire::ChunkReply::Status::ok);
}

TEST_CASE("a large fill that waits in the source takes no room of what is needed") {
  PeerServerOptions options;
  options.loading = 2'000'000;
  Serving home(options);
  home.ask(2, {Priority::Kind::background, 0});
  REQUIRE(home.source.pending() == 1);
  home.ask(0);
  CHECK(home.source.pending() == 2);
  home.ask(1, {Priority::Kind::background, 1});
  CHECK(home.source.pending() == 2);
}

TEST_CASE("a piece of a chunk is sent as soon as it is here, and only it is urgent") {
  constexpr uint32_t kChunk = 128 << 10;
  constexpr Priority kSoon{Priority::Kind::prefetch, 1'000'000};
  Serving home({}, nullptr, made_up_catalog({2 * kChunk}, kChunk));
  home.ask_for_piece({0, kChunk / 2}, kSoon);
  REQUIRE(home.source.pending() == 2);
  CHECK(home.source.raised == 0);
  home.server->on_reprioritize(kAsker, wire::Reprioritize{Priority{}, {0}});
  CHECK(home.source.raised == 1);
  REQUIRE(home.source.complete_one());
  CHECK(home.transport.take_bulks() == std::vector<TransferNumber>{0});
  CHECK(!home.cache->resident(ChunkId(0)));
  home.ask_for_piece({100, 200}, kSoon, true);
  CHECK(home.transport.take_bulks() == std::vector<TransferNumber>{100});
  home.ask_for_piece({kChunk / 2, kChunk}, kSoon, true);  // it is not here
  CHECK(home.transport.take_bulks().empty());
  home.ask_for_piece({kChunk / 2 - 100, kChunk / 2 + 100}, kSoon);
  CHECK(home.source.raised == 2);
  REQUIRE(home.source.complete_one());
  CHECK(home.transport.take_bulks() == std::vector<TransferNumber>{kChunk / 2 - 100});
  CHECK(home.source.bytes == kChunk);
}
