// Nodes of a job that need the index of the same packed file: together, one after the other, with nodes that
// hang, die, lie, or have another file.
#include "net/group/index_exchange.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <future>
#include <latch>
#include <thread>
#include <variant>
#include <vector>

#include <sys/mman.h>

#include "net/job.h"
#include "tests/support/captured_log.h"
#include "tests/support/network/in_process_transport.h"
#include "tests/support/network/recorded_transport.h"
#include "tests/support/temp_tree.h"
#include "tests/unit/plan/formats/index/index_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint32_t kRecords = 3000;
const IndexKey kKey{"lmdb", "keys=cursor", {FileId(1)}};

/// A node that needs indexes.
struct Indexing {
  Indexing(InProcessNetwork& network, NodeId rank, const std::function<void(JobOptions&)>& change = {},
           PackedFiles files = PackedFiles({1'000'000})) {
    files.source = "/mounted/on" + std::to_string(rank.value);
    files.files[0].inode = 100 + rank.value;
    catalog = files.catalog();
    JobOptions options;
    options.times = {50ms, 1min, 2min};
    options.index.piece = 1000;
    options.index.piece_patience = 200ms;
    options.index.ask_again = 20ms;
    options.index.answer_patience = 1min;  // all answer, be it on a slow machine
    if (change) change(options);
    job = std::make_unique<Job>(Job::Deps{network.endpoint(rank), clock, metrics, log.logger()}, options,
                                [](const std::string&) {});
    store = std::make_unique<IndexStore>(saved.path(), log.logger(), &job->index_peers());
    job->serve_indexes(*store);
  }
  ~Indexing() { job->stop(1s); }

  bool knows(size_t others) const {
    const auto nodes = job->nodes();
    return others <
           static_cast<size_t>(std::count_if(
               nodes.begin(), nodes.end(),
               [&](const auto& node) { return node.node == job->self() || node.state == PeerState::alive; }));
  }
  /// As a plan does.
  Result<IndexStore::Table> get(const std::function<void()>& while_making = {}, IndexWork* work = nullptr) {
    return store->get(kKey, catalog, work, [&]() -> Result<IndexStore::Table> {
      ++made;
      if (while_making) while_making();
      return records_in_f0(catalog, kRecords, 100);
    });
  }

  SteadyClock clock;
  CapturedLog log;
  Metrics metrics;
  TempTree saved;
  std::shared_ptr<const Catalog> catalog;
  std::atomic<int> made{0};
  std::unique_ptr<Job> job;
  std::unique_ptr<IndexStore> store;
};

std::vector<std::unique_ptr<Indexing>> nodes_of(InProcessNetwork& network, uint32_t count,
                                                const std::function<void(JobOptions&)>& change = {}) {
  std::vector<std::unique_ptr<Indexing>> nodes;
  for (uint32_t i = 0; i < count; ++i)
    nodes.push_back(std::make_unique<Indexing>(network, NodeId(i), change));
  for (const auto& node : nodes) REQUIRE(network.points().wait_until([&] { return node->knows(count - 1); }));
  return nodes;
}

/// All of them need the index at once and get the same. How many have made it.
int made_together(const std::vector<std::unique_ptr<Indexing>>& nodes) {
  std::vector<IndexStore::Table> got(nodes.size());
  {
    std::latch begin(static_cast<std::ptrdiff_t>(nodes.size()));
    std::vector<std::jthread> plans;
    for (size_t i = 0; i < nodes.size(); ++i) {
      plans.emplace_back([&, i] {
        begin.arrive_and_wait();
        // The network's delays are real time, and so is the making, in which the others are to ask.
        if (const auto table = nodes[i]->get([] { std::this_thread::sleep_for(50ms); })) got[i] = *table;
      });
    }
  }
  int made = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    REQUIRE(got[i]);
    CHECK(got[i]->identity() == got[0]->identity());
    made += nodes[i]->made;
  }
  return made;
}

/// The exchange of one node of three; what the others say is called by the test.
struct ExchangeAlone {
  explicit ExchangeAlone(NodeId self, const IndexExchangeOptions& options = patient())
      : transport(self, 3),
        exchange({transport, numbers, membership, clock,
                  [this](std::function<void()> task) { posted.push_back(std::move(task)); }},
                 options) {
    for (uint32_t rank = 0; rank < 3; ++rank) {
      if (NodeId(rank) != self) membership.on_hello(NodeId(rank), {});
    }
  }
  static IndexExchangeOptions patient() {
    IndexExchangeOptions options;
    options.patience = options.answer_patience = 10min;
    return options;
  }
  template <class Kind>
  bool asked_of(NodeId node) {
    return transport.points().wait_until([&] {
      const auto sent = transport.take_all();
      return std::any_of(sent.begin(), sent.end(), [&](const auto& message) {
        return message.first == node && std::holds_alternative<Kind>(message.second);
      });
    });
  }

  RecordedTransport transport;
  TransferNumbers numbers{3};
  SteadyClock clock;
  Metrics metrics;
  CapturedLog log;
  std::vector<std::function<void()>> posted;
  Membership membership{{transport, clock, metrics, log.logger(), [] { return wire::Hello{}; },
                         [](NodeId, PeerState, PeerState) {}},
                        {}};
  IndexExchange exchange;
};

}  // namespace

TEST_CASE("the others get the index of the node that made it") {
  InProcessNetwork network(4, 1, {0ms, 3ms});
  const auto nodes = nodes_of(network, 4);
  const auto made = nodes[2]->get();
  REQUIRE(made);
  for (const auto& node : nodes) {
    const auto got = node->get();
    REQUIRE(got);
    CHECK((*got)->identity() == (*made)->identity());
    check_equal(**got, **made);
    CHECK(node->made == (node == nodes[2] ? 1 : 0));
    if (node != nodes[2]) CHECK(node->log.has("3000 samples of lmdb from another node"));
  }
  // And have saved it as theirs.
  IndexStore next_mount(nodes[0]->saved.path(), nodes[0]->log.logger());
  REQUIRE(next_mount.get(kKey, nodes[0]->catalog, nullptr, []() -> Result<IndexStore::Table> {
    return Error{EIO, "made"};
  }));
}

TEST_CASE("of nodes that begin together one makes the index") {
  InProcessNetwork network(4, GENERATE(1, 2, 3, 4), {0ms, 5ms});
  const auto nodes = nodes_of(network, 4);
  const int made = made_together(nodes);
  CHECK(made == 1);
}

TEST_CASE("of nodes that get the index down a tree one makes it, too, whichever it is") {
  InProcessNetwork network(5, GENERATE(1, 2, 3), {0ms, 5ms});
  const auto nodes = nodes_of(network, 5, [](JobOptions& options) {
    options.index.branches = 2;
    options.index.direct_bytes = 0;
  });
  const bool together = GENERATE(false, true);
  if (together) {
    const int made = made_together(nodes);
    CHECK(made == 1);
    return;
  }
  const auto made = nodes[3]->get();  // those above it do not need it yet
  REQUIRE(made);
  std::vector<IndexStore::Table> held;
  for (const auto& node : nodes) {
    const auto got = node->get();
    REQUIRE(got);
    check_equal(**got, **made);
    CHECK(node->made == (node == nodes[3] ? 1 : 0));
    held.push_back(*got);
  }
}

TEST_CASE("a node whose file is another one makes its own index") {
  InProcessNetwork network(2, 1);
  PackedFiles touched({1'000'000});
  touched.files[0].mtime_ns = 5;
  Indexing first(network, NodeId(0));
  Indexing other(network, NodeId(1), {}, touched);
  REQUIRE(network.points().wait_until([&] { return other.knows(1); }));
  const auto made = first.get();
  REQUIRE(made);
  REQUIRE(other.get());
  CHECK(other.made == 1);
  CHECK(other.log.has("f0 has changed since"));
}

TEST_CASE("a node that does not get on with the index is not waited for") {
  InProcessNetwork network(2, 1);
  const std::string how = GENERATE("hangs", "dies", "leaves", "fails");
  const auto nodes = nodes_of(network, 2, [&](JobOptions& options) {
    // Not over before the other one has heard how far it is, which takes milliseconds.
    if (how == "hangs") options.index.patience = 3s;
    if (how == "dies") options.times = {50ms, 3s, 4s};
  });
  std::latch making(1);
  std::latch may_end(1);
  IndexWork made_by_first;
  std::jthread first([&] {
    (void)nodes[0]->store->get(kKey, nodes[0]->catalog, &made_by_first, [&]() -> Result<IndexStore::Table> {
      made_by_first.note(50, 100);
      making.count_down();
      may_end.wait();
      return Error{EIO, "the source is gone"};
    });
  });
  making.wait();
  IndexWork waits;  // its percentage is what the first one tells
  bool had_heard = false;
  auto second = std::async(std::launch::async,
                           [&] { return nodes[1]->get([&] { had_heard = waits.percent() >= 50; }, &waits); });
  CHECK(network.points().wait_until([&] { return waits.percent() == 50; }));
  if (how == "leaves" || how == "fails") {  // the others' patience may be over at any time
    made_by_first.note(75, 100);
    CHECK(network.points().wait_until([&] { return waits.percent() == 75; }));
    CHECK(nodes[1]->made == 0);
  }
  if (how == "dies") network.kill(NodeId(0));
  if (how == "leaves") nodes[0]->job->leave("");
  if (how == "fails") may_end.count_down();
  CHECK(second.get());
  CHECK(nodes[1]->made == 1);
  CHECK(had_heard);
  if (how != "fails") may_end.count_down();
}

TEST_CASE("an index comes over a network that loses and damages, or is made") {
  InProcessNetwork network(2, GENERATE(1, 2, 3), {0ms, 3ms, 0.2, 0.1, 0.02, 0.01, 0.1});
  const auto nodes = nodes_of(network, 2, [](JobOptions& options) { options.index.patience = 2s; });
  const auto made = nodes[0]->get();
  REQUIRE(made);
  const auto got = nodes[1]->get();
  REQUIRE(got);
  check_equal(**got, **made);
  CHECK((nodes[1]->made == 0) == nodes[1]->log.has("from another node"));
}

TEST_CASE("rubbish in place of an index is refused") {
  InProcessNetwork network(2, 1);
  Indexing node(network, NodeId(1));
  Transport& liar = network.endpoint(NodeId(0));
  const std::vector<std::byte> rubbish(1000, std::byte{7});
  liar.start({[&](NodeId, std::span<const std::byte> bytes) {
                const auto message = wire::decode(bytes);
                if (!message) return;
                if (const auto* inquiry = std::get_if<wire::IndexInquiry>(&*message)) {
                  (void)liar.send(NodeId(1), wire::encode(wire::IndexState{
                                                 inquiry->index, wire::IndexState::Stage::here, 0, 0, 5000}));
                } else if (const auto* asked = std::get_if<wire::IndexRequest>(&*message)) {
                  iovec memory{const_cast<std::byte*>(rubbish.data()), asked->length};
                  liar.send_bulk(NodeId(1), asked->transfer, {memory}, [](const Status&) {});
                }
              },
              [](TimePoint) {}});
  wire::Hello hello;
  hello.incarnation = 1;
  CHECK(liar.send(NodeId(1), wire::encode(hello)));
  REQUIRE(network.points().wait_until([&] { return node.knows(1); }));
  REQUIRE(node.get());
  CHECK(node.made == 1);
  CHECK(node.log.has("sent is not used"));
  liar.stop(0s);
}

TEST_CASE("who waits for another node's index can be cancelled, and ends with the job") {
  InProcessNetwork network(2, 1);
  const auto nodes = nodes_of(network, 2);
  std::latch making(1);
  std::latch may_end(1);
  IndexWork made_by_first;
  std::jthread first([&] {
    const auto half = [&] {
      made_by_first.note(50, 100);
      making.count_down();
      may_end.wait();
    };
    (void)nodes[0]->get(half, &made_by_first);
  });
  making.wait();
  IndexWork work;
  const bool by_the_job = GENERATE(false, true);
  auto second = std::async(std::launch::async, [&] { return nodes[1]->get({}, &work); });
  CHECK(network.points().wait_until([&] { return work.percent() == 50; }));  // it waits for the first
  if (by_the_job) nodes[1]->job->leave("");
  if (!by_the_job) work.cancel();
  const auto got = second.get();
  may_end.count_down();
  REQUIRE(!got);
  CHECK(got.error().code == ECANCELED);
  CHECK(nodes[1]->made == 0);
}

TEST_CASE("a node that has an index encodes it for others when it is the one to send it, and once") {
  ExchangeAlone node(NodeId(0));
  const auto catalog = PackedFiles({1'000'000}).catalog();
  IndexStore store("", node.log.logger());
  const auto table = store.get(kKey, catalog, nullptr, [&]() -> Result<IndexStore::Table> {
    return records_in_f0(catalog, kRecords, 100);
  });
  REQUIRE(table);
  node.exchange.serve(store);
  const uint64_t index = index_number(*catalog, kKey);
  const auto said = [&] {
    const auto states = node.transport.take_sent<wire::IndexState>();
    REQUIRE(states.size() == 1);
    return states[0];
  };
  node.exchange.on_inquiry(NodeId(1), {index});
  CHECK(said() == wire::IndexState{index, wire::IndexState::Stage::here});
  CHECK(node.posted.empty());
  for (const NodeId asker : {NodeId(1), NodeId(1), NodeId(2)}) {
    node.exchange.on_request(asker, {index});
    CHECK(said().stage == wire::IndexState::Stage::making);
  }
  REQUIRE(node.posted.size() == 1);
  node.posted[0]();
  const uint64_t bytes = said().bytes;
  CHECK(bytes == store.image(index).size());
  node.exchange.on_request(NodeId(2), {index});
  CHECK(said().bytes == bytes);
  CHECK(node.posted.size() == 1);
  for (int times = 0; times < 2; ++times) node.exchange.on_request(NodeId(1), {index, 0, 100, 7});
  CHECK(node.transport.take_bulks() == std::vector<TransferNumber>{7});  // the second was a repetition
}

TEST_CASE("one of the nodes that have an index is asked to encode it, the next one if that has it no more") {
  ExchangeAlone node(NodeId(2));
  IndexWork work;
  auto fetched = std::async(std::launch::async, [&] { return node.exchange.fetch(5, work); });
  CHECK(node.asked_of<wire::IndexInquiry>(NodeId(1)));  // from then on it hears the answers
  node.exchange.on_state(NodeId(1), {5, wire::IndexState::Stage::here});
  CHECK(node.asked_of<wire::IndexRequest>(NodeId(1)));
  node.exchange.on_state(NodeId(1), {5});
  node.exchange.on_state(NodeId(0), {5, wire::IndexState::Stage::here});
  CHECK(node.asked_of<wire::IndexRequest>(NodeId(0)));
  work.cancel();
  CHECK(fetched.get().error().code == ECANCELED);
}

TEST_CASE("in a large job a node waits for the one above it, and takes a large image from no other") {
  IndexExchangeOptions options = ExchangeAlone::patient();
  options.branches = 1;
  options.direct_bytes = 1000;
  options.ask_again = 1ms;
  options.ask_each = 0ms;
  ExchangeAlone node(NodeId(2), options);
  IndexWork work;
  auto fetched = std::async(std::launch::async, [&] { return node.exchange.fetch(5, work); });
  CHECK(node.asked_of<wire::IndexInquiry>(NodeId(1)));
  node.exchange.on_state(NodeId(1), {5, wire::IndexState::Stage::making, 30});
  SECTION("as long as that one gets on") {
    node.exchange.on_state(NodeId(0), {5, wire::IndexState::Stage::here, 0, 0, 1001});
    size_t questions = 0;
    bool requested = false;
    CHECK(node.transport.points().wait_until([&] {
      for (const auto& [to, message] : node.transport.take_all()) {
        questions += std::holds_alternative<wire::IndexInquiry>(message) ? 1 : 0;
        requested = requested || std::holds_alternative<wire::IndexRequest>(message);
      }
      return questions > 10;
    }));
    CHECK(!requested);
    CHECK(work.percent() == 30);
    node.exchange.on_state(NodeId(1), {5, wire::IndexState::Stage::here, 0, 0, 1001});
    CHECK(node.asked_of<wire::IndexRequest>(NodeId(1)));
  }
  SECTION("a small one is sent to all") {
    node.exchange.on_state(NodeId(0), {5, wire::IndexState::Stage::here, 0, 0, 1000});
    CHECK(node.asked_of<wire::IndexRequest>(NodeId(0)));
  }
  SECTION("the next one up sends it where that one does not need it") {
    node.exchange.on_state(NodeId(0), {5, wire::IndexState::Stage::here, 0, 0, 1001});
    node.exchange.on_state(NodeId(1), {5});
    CHECK(node.asked_of<wire::IndexRequest>(NodeId(0)));
  }
  work.cancel();
  CHECK(fetched.get().error().code == ECANCELED);
  node.transport.end(Error{ECANCELED, "cancelled"});
}

TEST_CASE("a node that gets an index tells those below it how far it is") {
  IndexExchangeOptions options = ExchangeAlone::patient();
  options.piece = 1000;
  ExchangeAlone node(NodeId(0), options);
  const auto catalog = PackedFiles({1'000'000}).catalog();
  IndexStore store("", node.log.logger(), &node.exchange);
  node.exchange.serve(store);
  const uint64_t index = index_number(*catalog, kKey);
  IndexWork work;
  auto got = std::async(std::launch::async, [&] {
    return store.get(kKey, catalog, &work, []() -> Result<IndexStore::Table> {
      return Error{EIO, "nobody makes it here"};
    });
  });
  CHECK(node.asked_of<wire::IndexInquiry>(NodeId(1)));
  node.exchange.on_state(NodeId(1), {index, wire::IndexState::Stage::here, 0, 0, 10'000});
  CHECK(node.transport.points().wait_until([&] { return node.transport.memory().size() == options.window; }));
  node.transport.end({});
  node.exchange.on_inquiry(NodeId(2), {index});
  CHECK(node.transport.take_sent<wire::IndexState>() ==
        std::vector<wire::IndexState>{{index, wire::IndexState::Stage::making, 30}});
  work.cancel();
  CHECK(!got.get());
  node.transport.end(Error{ECANCELED, "cancelled"});
}

TEST_CASE("the more nodes there are, the more rarely who waits asks them") {
  IndexExchangeOptions options;
  CHECK(options.ask_period(100) == 200ms);
  CHECK(options.ask_period(101) == 202ms);
  CHECK(options.ask_period(10'000) == options.answer_patience / 2);

  options = ExchangeAlone::patient();
  options.ask_again = 1us;
  options.ask_each = 10min;
  ExchangeAlone node(NodeId(2), options);
  IndexWork work;
  auto fetched = std::async(std::launch::async, [&] { return node.exchange.fetch(5, work); });
  CHECK(node.asked_of<wire::IndexInquiry>(NodeId(1)));
  node.exchange.on_state(NodeId(1), {5, wire::IndexState::Stage::here});
  size_t questions = 0;
  CHECK(node.transport.points().wait_until([&] {  // it looks again, and asks nobody
    bool requested = false;
    for (const auto& [to, message] : node.transport.take_all()) {
      questions += std::holds_alternative<wire::IndexInquiry>(message) ? 1 : 0;
      requested = requested || std::holds_alternative<wire::IndexRequest>(message);
    }
    return requested;
  }));
  CHECK(questions == 0);
  work.cancel();
  CHECK(fetched.get().error().code == ECANCELED);
}

TEST_CASE("the memory of a fetch that was given up is free once the network has let go of it") {
  ExchangeAlone node(NodeId(2));
  IndexWork work;
  auto fetched = std::async(std::launch::async, [&] { return node.exchange.fetch(5, work); });
  CHECK(node.asked_of<wire::IndexInquiry>(NodeId(1)));
  node.exchange.on_state(NodeId(1), {5, wire::IndexState::Stage::here, 0, 0, 64 << 20});
  CHECK(node.transport.points().wait_until([&] { return node.transport.memory().size() == 3; }));
  const auto memory = node.transport.memory();
  work.cancel();
  CHECK(fetched.get().error().code == ECANCELED);
  const auto is_mapped = [&](const iovec& piece) {
    unsigned char resident = 0;
    return ::mincore(piece.iov_base, 1, &resident) == 0;
  };
  for (const iovec& piece : memory) CHECK(is_mapped(piece));
  node.transport.end(Error{ECANCELED, "cancelled"});
  for (const iovec& piece : memory) CHECK(!is_mapped(piece));
}
