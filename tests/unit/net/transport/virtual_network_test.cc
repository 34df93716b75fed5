// Time that passes as the test says, cards that send one thing after the other, nodes that die and stand
// still.
#include "tests/support/network/virtual_network.h"

#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// A node that notes when something came.
struct Noting {
  Noting(VirtualNetwork& its_network, uint32_t rank)
      : network(its_network), transport(its_network.endpoint(NodeId(rank))) {
    transport.start({[this](NodeId, std::span<const std::byte> message) {
                       came.emplace_back(since_start(), message.size());
                     },
                     [this](TimePoint) { ++ticks; }});
  }
  ~Noting() { transport.stop({}); }
  Duration since_start() const { return network.clock().now() - start; }
  void send(uint32_t to, size_t bytes) { REQUIRE(transport.send(NodeId(to), std::vector<std::byte>(bytes))); }

  VirtualNetwork& network;
  Transport& transport;
  const TimePoint start = network.clock().now();
  std::vector<std::pair<Duration, size_t>> came;
  int ticks = 0;
};

using Came = std::vector<std::pair<Duration, size_t>>;

VirtualNetworkOptions a_megabyte_a_second() {
  VirtualNetworkOptions options;
  options.bytes_per_second = 1e6;
  options.latency = 1ms;
  options.message_overhead = 0;
  return options;
}

}  // namespace

TEST_CASE("a card sends one message after the other, and receives them so") {
  VirtualNetwork network(3, a_megabyte_a_second());
  Noting a(network, 0);
  Noting b(network, 1);
  Noting c(network, 2);
  a.send(1, 10000);
  a.send(2, 20000);
  b.send(2, 10000);
  CHECK(a.since_start() == 0ms);
  network.run_for(1s);
  CHECK(a.since_start() == 1s);
  CHECK(b.came == Came{{11ms, 10000}});
  CHECK(c.came == Came{{11ms, 10000}, {31ms, 20000}});
  CHECK(a.ticks >= 49);
  CHECK(a.ticks <= 51);
}

TEST_CASE("a transfer lands in its memory, and its sender hears when it may use its own again") {
  VirtualNetwork network(2, a_megabyte_a_second());
  Noting a(network, 0);
  Noting b(network, 1);
  std::string source(10000, 'x');
  std::string target(10000, '.');
  int received = 0;
  int sent = 0;
  b.transport.receive(NodeId(0), 7, {{target.data(), 4000}, {target.data() + 4000, 6000}},
                      [&](const Status& status) { received += status ? 1 : 0; });
  a.transport.send_bulk(NodeId(1), 7, {{source.data(), source.size()}},
                        [&](const Status& status) { sent += status ? 1 : 0; });
  CHECK(network.run_until([&] { return received == 1; }, 1s));
  CHECK(sent == 1);
  CHECK(target == source);
  CHECK(network.sent(NodeId(0)).bulk_bytes == 10000);
  CHECK(network.bulk_bytes_received(NodeId(1)) == 10000);
  CHECK(!network.run_until([] { return false; }, 1s));
}

TEST_CASE("a dead node neither sends nor receives, one that stands still does so later") {
  VirtualNetwork network(3, a_megabyte_a_second());
  Noting a(network, 0);
  Noting dead(network, 1);
  Noting stands(network, 2);
  network.kill(NodeId(1));
  network.hang(NodeId(2));
  a.send(1, 100);
  a.send(2, 100);
  dead.send(0, 100);
  network.run_for(1s);
  CHECK(a.came.empty());
  CHECK(dead.came.empty());
  CHECK(dead.ticks + stands.ticks == 0);
  CHECK(stands.came.empty());
  network.wake(NodeId(2));
  network.run_for(1s);
  CHECK(stands.came == Came{{1s, 100}});
  CHECK(stands.ticks > 0);
}
