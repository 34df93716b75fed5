#include "net/group/membership.h"

#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/moved_clock.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// Keeps what is sent.
class RecordingTransport final : public Transport {
 public:
  NodeId self() const override { return NodeId(0); }
  uint32_t size() const override { return 3; }
  std::string network_text() const override { return "none"; }
  void start(Handlers) override {}
  Status send(NodeId to, std::vector<std::byte> message) override {
    sent.emplace_back(to, *wire::decode(message));
    return {};
  }
  void receive(NodeId, TransferNumber, std::vector<iovec>, ReceiveDone) override {}
  void cancel(NodeId, TransferNumber) override {}
  void send_bulk(NodeId, TransferNumber, std::vector<iovec>, SendDone) override {}
  void stop(Duration) override {}

  /// Hellos to a node since the last call.
  std::vector<wire::Hello> hellos_to(uint32_t rank) {
    std::vector<wire::Hello> list;
    std::erase_if(sent, [&](const auto& message) {
      if (message.first != NodeId(rank) || !std::holds_alternative<wire::Hello>(message.second)) return false;
      list.push_back(std::get<wire::Hello>(message.second));
      return true;
    });
    return list;
  }
  std::vector<std::pair<NodeId, wire::Message>> sent;
};

struct Fixture {
  Fixture()
      : membership(
            {transport, clock, metrics, log.logger(), [] { return wire::Hello{}; },
             [this](NodeId rank, PeerState before, PeerState now) {
               changes.push_back(std::to_string(rank.value) + " " + to_string(before) + " " + to_string(now));
             }},
            {1s, 3s, 15s}) {}
  /// Time passes, with ticks as the transport makes them; the nodes of `talking` are heard all the time.
  void pass(Duration duration, std::vector<uint32_t> talking = {}, Duration tick = 20ms) {
    const TimePoint until = clock.time + duration;
    while (clock.time < until) {
      clock.time += tick;
      for (const uint32_t rank : talking) membership.heard(NodeId(rank), clock.time);
      membership.tick(clock.time);
    }
  }
  void hello(uint32_t rank, uint64_t incarnation = 1, uint64_t identity = 0) {
    wire::Hello hello;
    hello.incarnation = incarnation;
    hello.catalog_identity = identity;
    hello.ready = identity != 0;
    membership.heard(NodeId(rank), clock.time);
    membership.on_hello(NodeId(rank), hello);
  }
  PeerState state(uint32_t rank) const { return membership.state(NodeId(rank)); }
  std::vector<std::string> take_changes() { return std::exchange(changes, {}); }

  RecordingTransport transport;
  MovedClock clock;
  CapturedLog log;
  Metrics metrics;
  std::vector<std::string> changes;
  Membership membership;
};

using Changes = std::vector<std::string>;

}  // namespace

TEST_CASE("a node says hello to all about once a second, and wants an answer to its first") {
  Fixture f;
  f.pass(100ms);
  CHECK(f.transport.hellos_to(0).empty());
  const auto first = f.transport.hellos_to(1);
  REQUIRE(first.size() == 1);
  CHECK(first[0].wants_answer);
  CHECK(first[0].incarnation > 0);
  f.pass(10s, {1, 2});
  const auto later = f.transport.hellos_to(1);
  CHECK(later.size() >= 9);
  CHECK(later.size() <= 11);
  CHECK(!later[0].wants_answer);
  wire::Hello question;
  question.wants_answer = true;
  f.membership.on_hello(NodeId(2), question);
  CHECK(!f.transport.hellos_to(2).empty());
}

TEST_CASE("a silent node is late, then dead, and alive again when it is heard") {
  Fixture f;
  f.pass(1s);
  f.hello(1);
  f.hello(2);
  CHECK(f.take_changes() == Changes{"1 joining alive", "2 joining alive"});
  CHECK(f.metrics.peers_alive.value() == 2);
  f.pass(2900ms, {2});
  CHECK(f.changes.empty());
  f.pass(200ms, {2});
  CHECK(f.take_changes() == Changes{"1 alive late"});
  f.membership.heard(NodeId(1), f.clock.time);
  CHECK(f.take_changes() == Changes{"1 late alive"});
  f.pass(16s, {2});
  CHECK(f.take_changes() == Changes{"1 alive late", "1 late dead"});
  CHECK(f.metrics.peers_dead.value() == 1);
  f.membership.heard(NodeId(1), f.clock.time);  // something of it that was still on its way
  CHECK(f.state(1) == PeerState::dead);
  f.hello(1, 2);
  CHECK(f.take_changes() == Changes{"1 dead alive"});
  CHECK(f.metrics.peers_dead.value() == 0);
  CHECK(f.metrics.peers_alive.value() == 2);
}

TEST_CASE("where nothing happens, ticks 60 ms apart are enough to notice a death in time") {
  Fixture f;
  f.pass(1s);
  f.hello(1);
  f.hello(2);
  f.take_changes();
  f.transport.sent.clear();
  f.pass(2940ms, {2}, 60ms);
  CHECK(f.changes.empty());
  f.pass(120ms, {2}, 60ms);
  CHECK(f.take_changes() == Changes{"1 alive late"});
  f.pass(11940ms, {2}, 60ms);
  CHECK(f.changes.empty());
  f.pass(60ms, {2}, 60ms);
  CHECK(f.take_changes() == Changes{"1 late dead"});
  CHECK(f.transport.hellos_to(2).size() >= 13);
}

TEST_CASE("a node that never came is not dead, one that left stays away") {
  Fixture f;
  f.pass(1s);
  f.hello(1, 7);
  f.pass(60s, {1});
  CHECK(f.state(2) == PeerState::joining);
  f.membership.on_goodbye(NodeId(1), "told to");
  CHECK(f.state(1) == PeerState::left);
  CHECK(f.log.has("left: told to"));
  f.hello(1, 7);  // said before the goodbye
  CHECK(f.state(1) == PeerState::left);
  f.transport.sent.clear();
  f.pass(30s, {2});
  CHECK(f.transport.hellos_to(1).empty());
  f.hello(1, 8);
  CHECK(f.state(1) == PeerState::alive);
}

TEST_CASE("a suspected node is late at once") {
  Fixture f;
  f.pass(1s);
  f.hello(1);
  f.membership.suspect(NodeId(1), 2s);
  f.membership.suspect(NodeId(1), 2s);
  f.membership.suspect(NodeId(2), 2s);  // not here yet
  CHECK(f.take_changes() == Changes{"1 joining alive", "1 alive late"});
}

TEST_CASE("a node that stood still blames nobody and says hello at once, as somebody new") {
  Fixture f;
  f.pass(1s);
  f.hello(1);
  f.hello(2);
  f.pass(1s, {1, 2});
  const auto before = f.transport.hellos_to(1);
  f.take_changes();
  f.clock.time += 60s;  // SIGSTOP
  f.membership.tick(f.clock.time);
  CHECK(f.changes.empty());
  const auto after = f.transport.hellos_to(1);
  REQUIRE(!after.empty());
  CHECK(after[0].wants_answer);
  CHECK(after[0].incarnation > before[0].incarnation);
  f.pass(4s);
  CHECK(f.take_changes() == Changes{"1 alive late", "2 alive late"});  // those were really gone
}

TEST_CASE("only nodes that are ready with the same catalog are asked") {
  Fixture f;
  f.pass(1s);
  f.hello(1, 1, 42);
  f.hello(2, 1, 43);
  CHECK(!f.membership.serves(NodeId(1)));
  f.membership.set_ready(42);
  CHECK(f.membership.serves(NodeId(1)));
  CHECK(!f.membership.serves(NodeId(2)));
  CHECK(!f.membership.serves(NodeId(0)));
  const auto hellos = f.transport.hellos_to(1);
  CHECK(hellos.back().ready);
  CHECK(hellos.back().catalog_identity == 42);
  f.membership.suspect(NodeId(1), 1s);
  CHECK(!f.membership.serves(NodeId(1)));
}

TEST_CASE("what an earlier incarnation of a node said counts no more") {
  Fixture f;
  f.pass(1s);
  f.membership.set_ready(42);
  f.hello(1, 7, 42);
  f.hello(1, 8);  // it began anew, and has no catalog yet
  CHECK(!f.membership.serves(NodeId(1)));
  f.hello(1, 7, 42);
  CHECK(!f.membership.serves(NodeId(1)));
  CHECK(f.membership.report()[1].info.incarnation == 8);
  f.hello(1, 8, 42);
  CHECK(f.membership.serves(NodeId(1)));
  f.membership.on_goodbye(NodeId(1), "");
  f.hello(1, 7, 42);
  f.hello(1, 8, 42);  // newer than the one before it, but said before the goodbye, too
  CHECK(f.state(1) == PeerState::left);
  f.hello(1, 9, 42);
  f.pass(20s, {2});
  REQUIRE(f.state(1) == PeerState::dead);
  f.hello(1, 3, 42);  // its clock was set back
  CHECK(f.state(1) == PeerState::alive);
}

TEST_CASE("a node that began anew with its clock set back is taken for that once the one before is silent") {
  Fixture f;
  f.pass(1s);
  f.membership.set_ready(42);
  f.hello(1, 7, 42);
  f.pass(14s, {1});
  f.hello(1, 3);  // it has no catalog yet
  CHECK(f.membership.serves(NodeId(1)));
  f.pass(2s, {1});
  f.hello(1, 3);
  CHECK(!f.membership.serves(NodeId(1)));
  f.hello(1, 3, 42);
  CHECK(f.membership.serves(NodeId(1)));
  f.membership.on_goodbye(NodeId(1), "");
  f.hello(1, 2, 42);
  CHECK(f.state(1) == PeerState::left);
  f.pass(16s);
  f.hello(1, 3, 42);  // nothing new
  CHECK(f.state(1) == PeerState::left);
  f.pass(16s);
  f.hello(1, 2, 42);
  CHECK(f.state(1) == PeerState::alive);
}

TEST_CASE("a node that has said goodbye says no hello any more, not even after it stood still") {
  Fixture f;
  f.pass(1s);
  f.hello(1);
  f.membership.say_goodbye("told to");
  REQUIRE(!f.transport.hellos_to(1).empty());  // those before
  f.pass(3s, {1});
  f.clock.time += 60s;
  f.pass(3s, {1});
  wire::Hello question;
  question.incarnation = 1;
  question.wants_answer = true;
  f.membership.on_hello(NodeId(1), question);
  CHECK(f.transport.hellos_to(1).empty());
}

TEST_CASE("dead nodes are told now and then that somebody is here") {
  Fixture f;
  f.pass(1s);
  f.hello(1);
  f.pass(20s, {2});
  REQUIRE(f.state(1) == PeerState::dead);
  f.transport.sent.clear();
  f.pass(100s, {2});
  const size_t hellos = f.transport.hellos_to(1).size();
  CHECK(hellos >= 9);
  CHECK(hellos <= 11);
}
