// What is given up and when, message by message: nothing here waits.
#include "net/peers/client.h"

#include <array>

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/moved_clock.h"
#include "tests/support/network/recorded_transport.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr NodeId kPeer{1};
constexpr uint32_t kBytes = 1000;

/// Node 0, whose readers ask node 1, of two nodes or more.
struct Asking {
  explicit Asking(const PeerClientOptions& options = {}, uint32_t nodes = 2)
      : transport(NodeId(0), nodes),
        numbers(nodes),
        membership({transport, clock, metrics, log.logger(), [] { return wire::Hello{}; },
                    [](NodeId, PeerState, PeerState) {}},
                   {}),
        client({transport, membership, numbers, clock, metrics, log.logger()}, options) {
    membership.heard(kPeer, clock.time);
    membership.on_hello(kPeer, {});
  }
  ~Asking() {
    client.stop();
    transport.end(Error{ECANCELED, "the network is stopped"});
  }

  /// A reader does. `only_here`: as of one that is left alone.
  void ask(bool only_here = false) {
    PeerFetch fetch;
    fetch.peer = kPeer;
    fetch.length = kBytes;
    fetch.memory = {{memory.data(), kBytes}};
    fetch.demand = std::make_shared<const Demand>(Priority{});
    fetch.home = true;
    fetch.only_here = only_here;
    fetch.done = [this](PeerOutcome outcome) { outcomes.push_back(outcome); };
    client.start(std::move(fetch));
  }
  /// Time passes, with ticks as the transport makes them. Returns how often the peer was asked how it is.
  size_t probes_within(Duration duration) {
    const TimePoint until = clock.time + duration;
    while (clock.time < until) {
      clock.time += 20ms;
      membership.heard(kPeer, clock.time);
      client.tick(clock.time);
    }
    return transport.take_sent<wire::Probe>().size();
  }

  /// A tick of the net thread, as Job makes it, after so long without one.
  void tick_after(Duration gap) {
    clock.time += gap;
    membership.tick(clock.time);
    client.tick(clock.time);
  }

  RecordedTransport transport;
  TransferNumbers numbers;
  MovedClock clock;
  CapturedLog log;
  Metrics metrics;
  std::array<std::byte, kBytes> memory{};
  std::vector<PeerOutcome> outcomes;
  Membership membership;
  PeerClient client;
};

using Outcomes = std::vector<PeerOutcome>;

}  // namespace

TEST_CASE("what a peer whose PFS hangs has not answered is given up on its word") {
  Asking a;
  a.ask();
  a.ask();
  const auto requests = a.transport.take_sent<wire::ChunkRequests>();
  REQUIRE(requests.size() == 2);
  const wire::ChunkReply reply{requests[0].list[0].id, wire::ChunkReply::Status::ok, Origin::ram, 0, 0};
  a.client.on_replies(kPeer, {{reply}});  // its bytes are still to come
  a.client.on_probe_answer(kPeer, {{}, 4999});
  CHECK(a.transport.take_cancelled().empty());
  CHECK(!a.client.left_alone(kPeer));
  a.client.on_probe_answer(kPeer, {{}, 5000});
  CHECK(a.transport.take_cancelled() == std::vector<TransferNumber>{requests[1].list[0].transfer});
  CHECK(a.client.left_alone(kPeer));
  CHECK(a.log.has("warning: the PFS of node 1 has brought nothing"));
}

TEST_CASE("a peer that is left alone is asked how it is, and for chunks once its PFS is well") {
  Asking a;
  a.client.on_probe_answer(kPeer, {{}, 7000});
  REQUIRE(a.client.left_alone(kPeer));
  const size_t probes = a.probes_within(10s);
  CHECK(probes >= 9);
  CHECK(probes <= 11);
  a.client.on_probe_answer(kPeer, {{}, 17000});
  CHECK(a.client.left_alone(kPeer));
  a.client.on_probe_answer(kPeer, {{}, 0});
  CHECK(!a.client.left_alone(kPeer));
  CHECK(a.log.has("info: the PFS of node 1 brings something again"));
  CHECK(a.probes_within(3s) == 0);
}

TEST_CASE("a peer that is left alone has a while to bring what it has") {
  Asking a;
  a.client.on_probe_answer(kPeer, {{}, 7000});
  REQUIRE(a.client.left_alone(kPeer));
  a.ask(true);
  const auto requests = a.transport.take_sent<wire::ChunkRequests>();
  REQUIRE(requests.size() == 1);
  CHECK(requests[0].list[0].only_here);
  a.probes_within(4900ms);
  a.client.on_probe_answer(kPeer, {{}, 12000});
  CHECK(a.transport.take_cancelled().empty());
  a.probes_within(100ms);
  a.client.on_probe_answer(kPeer, {{}, 12100});
  CHECK(a.transport.take_cancelled() == std::vector<TransferNumber>{requests[0].list[0].transfer});
}

TEST_CASE("a peer that is left alone is tried again, whatever it says of its PFS") {
  Asking a;
  a.client.on_probe_answer(kPeer, {{}, 7000});
  a.probes_within(29900ms);
  a.client.on_probe_answer(kPeer, {{}, 37000});
  CHECK(a.client.left_alone(kPeer));
  a.probes_within(200ms);
  CHECK(!a.client.left_alone(kPeer));
  a.client.on_probe_answer(kPeer, {{}, 38000});
  CHECK(a.client.left_alone(kPeer));
}

TEST_CASE("no peer is left alone while this node's own PFS brings nothing either") {
  Asking a;
  a.metrics.pfs_in_flight.add(1);
  a.ask();
  a.probes_within(2s);
  a.client.on_probe_answer(kPeer, {{}, 9000});
  CHECK(a.transport.take_cancelled().empty());
  CHECK(!a.client.left_alone(kPeer));
  a.metrics.pfs_latency.record(1ms);  // it brings something
  a.client.on_probe_answer(kPeer, {{}, 9000});
  CHECK(a.transport.take_cancelled().size() == 1);
  CHECK(a.client.left_alone(kPeer));
  a.probes_within(2s);
  a.client.on_probe_answer(kPeer, {{}, 11000});
  CHECK(!a.client.left_alone(kPeer));
  CHECK(a.log.has("info: the PFS of node 1 brings nothing, as that of this node"));
  a.metrics.pfs_in_flight.add(-1);  // nobody asks it for anything now
  a.client.on_probe_answer(kPeer, {{}, 12000});
  CHECK(a.client.left_alone(kPeer));
}

TEST_CASE("a request that is given up gives back its credit, and its late reply is nobody's") {
  PeerClientOptions options;
  options.most_requests = 1;  // two for readers
  Asking a(options);
  for (int i = 0; i < 3; ++i) a.ask();
  auto requests = a.transport.take_sent<wire::ChunkRequests>();
  REQUIRE(requests.size() == 2);
  a.probes_within(options.most_wait + 1s);
  a.transport.end(Error{ECANCELED, "the transfer was cancelled"});
  CHECK(a.outcomes == Outcomes(3, PeerOutcome::late));
  CHECK(a.metrics.peers_outstanding_bytes.value() == 0);
  for (const auto& request : requests) {
    const wire::ChunkReply reply{request.list[0].id, wire::ChunkReply::Status::ok, Origin::pfs, 0, 0};
    a.client.on_replies(kPeer, {{reply}});
  }
  for (int i = 0; i < 2; ++i) a.ask();
  requests = a.transport.take_sent<wire::ChunkRequests>();
  CHECK(requests.size() == 2);
}

TEST_CASE("a node that stood still gives up nothing before its peers had time to be heard") {
  const bool large = GENERATE(false, true);
  Asking a({}, large ? 1024 : 2);
  a.tick_after(20ms);
  a.ask();
  REQUIRE(a.transport.take_sent<wire::ChunkRequests>().size() == 1);
  a.tick_after(large ? 10s : 2500ms);  // less than makes a node late by its hellos
  CHECK(a.membership.state(kPeer) == PeerState::alive);
  CHECK(a.transport.take_cancelled().empty());
  CHECK(a.log.has("warning: this process was suspended for"));
  for (Duration silence = 0ms; silence < 2s; silence += 20ms) a.tick_after(20ms);
  CHECK(a.transport.take_cancelled().empty());
  a.tick_after(20ms);  // now it is the peer that is silent
  CHECK(a.membership.state(kPeer) == PeerState::late);
  CHECK(a.transport.take_cancelled().size() == 1);
}
