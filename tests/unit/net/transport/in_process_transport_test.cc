#include "tests/support/network/in_process_transport.h"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

#include "cache/base/mutex.h"
#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

/// One end, and what arrived there.
struct End {
  explicit End(Transport& t) : transport(t) {
    transport.start({[this](NodeId from, std::span<const std::byte> message) {
                       MutexLock lock(mutex);
                       messages.emplace_back(from, std::vector<std::byte>(message.begin(), message.end()));
                     },
                     [this](TimePoint) { ++ticks; }});
  }
  ~End() { transport.stop(0s); }
  size_t arrived() {
    MutexLock lock(mutex);
    return messages.size();
  }
  std::vector<int> numbers() {
    MutexLock lock(mutex);
    std::vector<int> list;
    for (const auto& [from, bytes] : messages) {
      list.push_back(0);
      std::memcpy(&list.back(), bytes.data(), sizeof(int));
    }
    return list;
  }
  Status send(NodeId to, int number) {
    std::vector<std::byte> bytes(sizeof(number));
    std::memcpy(bytes.data(), &number, sizeof(number));
    return transport.send(to, bytes);
  }

  Transport& transport;
  std::atomic<int> ticks{0};
  Mutex mutex;
  std::vector<std::pair<NodeId, std::vector<std::byte>>> messages;
};

/// A transfer's memory and its end.
struct Buffer {
  explicit Buffer(size_t size, char fill = 0) : bytes(size, fill) {}
  std::vector<iovec> memory() { return {{bytes.data(), bytes.size()}}; }
  std::function<void(Status)> done() {
    return [this](const Status& status) {
      code = status ? 0 : status.error().code;
      ++calls;
    };
  }
  std::string bytes;
  std::atomic<int> code{-1};
  std::atomic<int> calls{0};
};

constexpr NodeId r0(0);
constexpr NodeId r1(1);

}  // namespace

TEST_CASE("messages of a pair stay in order under any delay") {
  InProcessNetwork network(2, 7, {0ms, 3ms});
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  for (int i = 0; i < 200; ++i) CHECK(a.send(r1, i));
  REQUIRE(network.points().wait_until([&] { return b.arrived() == 200; }));
  std::vector<int> expected(200);
  for (int i = 0; i < 200; ++i) expected[static_cast<size_t>(i)] = i;
  CHECK(b.numbers() == expected);
  CHECK(network.points().wait_until([&] { return a.ticks > 3; }));
}

TEST_CASE("the same seed loses the same messages") {
  std::vector<std::vector<int>> outcomes;
  for (const uint64_t seed : {1, 1, 2}) {
    InProcessNetwork network(2, seed, {0ms, 0ms, 0.5});
    End a(network.endpoint(r0));
    End b(network.endpoint(r1));
    for (int i = 0; i < 100; ++i) CHECK(a.send(r1, i));
    const auto end_arrived = [&] {
      const std::vector<int> numbers = b.numbers();
      return !numbers.empty() && numbers.back() == 1000;
    };
    REQUIRE(network.points().wait_until([&] { return end_arrived() || !a.send(r1, 1000); }));
    outcomes.push_back(b.numbers());
    std::erase(outcomes.back(), 1000);
  }
  CHECK(outcomes[0] == outcomes[1]);
  CHECK(outcomes[0] != outcomes[2]);
  CHECK(outcomes[0].size() > 25);
  CHECK(outcomes[0].size() < 75);
}

TEST_CASE("a transfer lands in its receiver's memory") {
  InProcessNetwork network(2, 7, {0ms, 2ms});
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  Buffer source(100000, 'x');
  Buffer target(100000);
  b.transport.receive(r0, 5, target.memory(), target.done());
  a.transport.send_bulk(r1, 5, source.memory(), source.done());
  REQUIRE(network.points().wait_until([&] { return target.calls == 1 && source.calls == 1; }));
  CHECK(target.code == 0);
  CHECK(source.code == 0);
  CHECK(target.bytes == source.bytes);
}

TEST_CASE("a transfer of another length, and one that nobody waits for, write nothing") {
  InProcessNetwork network(2, 7);
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  Buffer source(1000, 'x');
  Buffer target(999);
  Buffer unwanted(10, 'y');
  b.transport.receive(r0, 5, target.memory(), target.done());
  a.transport.send_bulk(r1, 6, unwanted.memory(), unwanted.done());
  a.transport.send_bulk(r1, 5, source.memory(), source.done());
  REQUIRE(network.points().wait_until(
      [&] { return target.calls == 1 && source.calls == 1 && unwanted.calls == 1; }));
  CHECK(target.code == EMSGSIZE);
  CHECK(target.bytes == std::string(999, '\0'));
}

TEST_CASE("a cancelled receive gives its memory back, once") {
  InProcessNetwork network(2, 7);
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  Buffer target(10);
  b.transport.receive(r0, 5, target.memory(), target.done());
  b.transport.cancel(r0, 5);
  b.transport.cancel(r0, 5);
  b.transport.cancel(r0, 77);
  REQUIRE(network.points().wait_until([&] { return target.calls == 1; }));
  CHECK(target.code == ECANCELED);
  Buffer late(10, 'x');
  a.transport.send_bulk(r1, 5, late.memory(), late.done());
  REQUIRE(network.points().wait_until([&] { return late.calls == 1; }));
  CHECK(target.bytes == std::string(10, '\0'));
}

TEST_CASE("a stuck transfer does not give its memory back") {
  InProcessNetwork network(2, 7);
  Buffer source(10, 'x');
  Buffer target(10);  // outlives the ends: the network writes to it until they stop
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  network.set_faults({0ms, 0ms, 0, 0, 0, 1});
  b.transport.receive(r0, 5, target.memory(), target.done());
  a.transport.send_bulk(r1, 5, source.memory(), source.done());
  CHECK(a.send(r1, 1));
  REQUIRE(network.points().wait_until([&] { return b.arrived() == 1; }));
  CHECK(target.calls == 0);
  REQUIRE(network.points().wait_until([&] { return network.stuck(r1) == 1; }));
  b.transport.cancel(r0, 5);
  REQUIRE(network.points().wait_until([&] { return target.calls == 1; }));
  CHECK(target.code == EBUSY);
}

TEST_CASE("damaged transfers differ in one bit") {
  InProcessNetwork network(2, 7, {0ms, 0ms, 0, 0, 1});
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  Buffer source(1000, 'x');
  Buffer target(1000);
  b.transport.receive(r0, 5, target.memory(), target.done());
  a.transport.send_bulk(r1, 5, source.memory(), source.done());
  REQUIRE(network.points().wait_until([&] { return target.calls == 1; }));
  int bits = 0;
  for (size_t i = 0; i < 1000; ++i)
    bits += std::popcount(static_cast<unsigned char>(source.bytes[i] ^ target.bytes[i]));
  CHECK(bits == 1);
}

TEST_CASE("nothing reaches or leaves a killed node") {
  InProcessNetwork network(3, 7);
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  End c(network.endpoint(NodeId(2)));
  network.kill(r1);
  Buffer source(10, 'x');
  a.transport.send_bulk(r1, 5, source.memory(), source.done());
  CHECK(a.send(r1, 1));
  CHECK(b.send(NodeId(2), 2));
  CHECK(a.send(NodeId(2), 3));
  REQUIRE(network.points().wait_until([&] { return c.arrived() == 1; }));
  CHECK(c.numbers() == std::vector<int>{3});
  CHECK(b.arrived() == 0);
  CHECK(source.calls == 0);
  a.transport.stop(0s);
  CHECK(source.calls == 1);
  CHECK(source.code == ECANCELED);
  CHECK(a.send(r1, 1).error().code == ECANCELED);
}

TEST_CASE("a hung node gets and sends everything when it wakes") {
  InProcessNetwork network(2, 7);
  End a(network.endpoint(r0));
  End b(network.endpoint(r1));
  network.hang(r1);
  Buffer target(10);
  b.transport.receive(r0, 5, target.memory(), target.done());
  {
    Buffer source(10, 'x');
    a.transport.send_bulk(r1, 5, source.memory(), [](const Status&) {});
    source.bytes.assign(10, 'z');  // given up: what arrives later must be of no harm to anyone
  }
  CHECK(a.send(r1, 1));
  CHECK(b.send(r0, 2));
  REQUIRE(network.points().wait_until([&] { return network.queued(r1) == 1; }));
  CHECK(a.arrived() + b.arrived() == 0);
  network.wake(r1);
  REQUIRE(
      network.points().wait_until([&] { return a.arrived() == 1 && b.arrived() == 1 && target.calls == 1; }));
  CHECK(target.bytes == std::string(10, 'x'));
}

TEST_CASE("stop() ends everything that is outstanding and lets queued messages leave") {
  InProcessNetwork network(2, 7);
  Buffer target(10);
  Buffer source(10);
  End b(network.endpoint(r1));
  End a(network.endpoint(r0));
  a.transport.receive(r1, 1, target.memory(), target.done());
  network.hang(r1);
  a.transport.send_bulk(r1, 2, source.memory(), source.done());
  for (int i = 0; i < 100; ++i) CHECK(a.send(r1, i));
  a.transport.stop(5s);
  CHECK(target.code == ECANCELED);
  CHECK(source.code == ECANCELED);
  network.wake(r1);
  CHECK(network.points().wait_until([&] { return b.arrived() == 100; }));
}

TEST_CASE("a node that does not read is not sent to for ever") {
  InProcessNetwork network(2, 7);
  End b(network.endpoint(r1));
  End a(network.endpoint(r0));
  network.hang(r1);
  int sent = 0;
  CHECK(network.points().wait_until([&] {
    for (int i = 0; i < 100; ++i, ++sent) {
      if (Status status = a.send(r1, sent); !status) return status.error().code == EAGAIN;
    }
    return false;
  }));
  CHECK(sent > 1000);
  CHECK(a.transport.send(r1, std::vector<std::byte>(kMaxMessage + 1)).error().code == EMSGSIZE);
}
