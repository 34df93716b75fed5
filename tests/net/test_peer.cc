#include "tests/net/test_peer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace clairfs {
namespace {

enum class Kind : uint8_t { request, chat, phase };

template <class Body>
std::vector<std::byte> message_of(Kind kind, const Body& body, size_t padding = 0) {
  std::vector<std::byte> message(1 + sizeof body + padding);
  message[0] = static_cast<std::byte>(kind);
  std::memcpy(message.data() + 1, &body, sizeof body);
  return message;
}

template <class Body>
Body body_of(std::span<const std::byte> body) {
  Body value;
  std::memcpy(&value, body.data(), sizeof value);
  return value;
}

uint64_t mix(uint64_t x) {  // splitmix64, Steele et al. 2014
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

std::span<std::byte> body_after(std::vector<std::byte>& message, size_t bytes) {
  return std::span(message).subspan(bytes);
}

}  // namespace

void fill(const Content& content, std::span<std::byte> memory) {
  uint64_t word = mix(uint64_t{content.from.value} << 48 | uint64_t{content.to.value} << 32 | content.number);
  for (size_t at = 0; at < memory.size(); at += sizeof word) {
    std::memcpy(memory.data() + at, &word, std::min(sizeof word, memory.size() - at));
    word = word * 6364136223846793005 + 1442695040888963407;  // Knuth's, any would do
  }
}

std::vector<iovec> scattered(std::span<std::byte> memory, unsigned parts) {
  std::vector<iovec> scattered;
  for (unsigned i = 0; i < parts && !memory.empty(); ++i) {
    const bool last = i + 1 == parts;
    const size_t length = last ? memory.size() : std::min(memory.size(), memory.size() / (parts - i) + i * 7);
    scattered.push_back({memory.data(), length});
    memory = memory.subspan(length);
  }
  return scattered;
}

bool Fetch::right() const {
  std::vector<std::byte> expected(memory.size());
  fill(content, expected);
  return memory == expected;
}

TestPeer::TestPeer(Transport& transport) : transport_(transport) {}

void TestPeer::start() {
  Transport::Handlers handlers;
  handlers.message = [this](NodeId from, std::span<const std::byte> message) { on_message(from, message); };
  handlers.tick = [this](TimePoint now) {
    MutexLock lock(mutex_);
    if (ticks_++ > 0) longest_gap_ = std::max(longest_gap_, now - last_tick_);
    last_tick_ = now;
  };
  handlers.stands_alone = [this](std::span<const std::byte> message) {
    return chats_stand_alone_ && static_cast<Kind>(message[0]) == Kind::chat;
  };
  transport_.start(std::move(handlers));
}

void TestPeer::on_message(NodeId from, std::span<const std::byte> message) {
  const auto body = message.subspan(1);
  switch (static_cast<Kind>(message[0])) {
    case Kind::request:
      serve(from, body_of<Request>(body));
      break;
    case Kind::chat:
      on_chat(from, body);
      break;
    case Kind::phase: {
      MutexLock lock(mutex_);
      arrived_[body_of<uint32_t>(body)].insert(from);
      changed_.notify_all();
    }
  }
}

void TestPeer::on_chat(NodeId from, std::span<const std::byte> body) {
  const auto number = body_of<uint64_t>(body);
  std::vector<std::byte> expected(body.size() - sizeof number);
  fill({from, transport_.self(), static_cast<TransferNumber>(number)}, expected);
  const bool right = std::ranges::equal(expected, body.subspan(sizeof number));
  MutexLock lock(mutex_);
  if (!right || number != heard_[from]) ++mistakes_;
  ++heard_[from];
  changed_.notify_all();
}

void TestPeer::serve(NodeId to, const Request& request) {
  const auto bytes = std::make_shared<std::vector<std::byte>>(request.size);
  fill({transport_.self(), to, request.number}, *bytes);
  {
    MutexLock lock(mutex_);
    ++sending_;
  }
  transport_.send_bulk(to, request.number, scattered(*bytes, request.parts), [this, bytes](const Status&) {
    MutexLock lock(mutex_);
    --sending_;
    changed_.notify_all();
  });
}

Fetched TestPeer::expect(NodeId from, TransferNumber number, size_t size, unsigned parts) {
  const auto fetch = std::make_shared<Fetch>();
  fetch->content = {from, transport_.self(), number};
  fetch->memory.resize(size);
  transport_.receive(from, number, scattered(fetch->memory, parts), [this, fetch](const Status& status) {
    MutexLock lock(mutex_);
    fetch->status = status;
    ++fetch->calls;
    changed_.notify_all();
  });
  return fetch;
}

bool TestPeer::send(NodeId to, std::vector<std::byte> message, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const Status sent = transport_.send(to, message);
    if (sent || sent.error().code != EAGAIN) return sent.ok();
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void TestPeer::request(NodeId from, const Request& request) {
  send(from, message_of(Kind::request, request), std::chrono::seconds(10));
}

Fetched TestPeer::fetch(NodeId from, TransferNumber number, size_t size, unsigned parts) {
  auto fetch = expect(from, number, size, parts);
  request(from, {number, size, parts + 1});
  return fetch;
}

bool TestPeer::wait(const Fetched& fetch, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  MutexLock lock(mutex_);
  while (!fetch->status) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    changed_.wait_until(lock, deadline);
  }
  return true;
}

bool TestPeer::chat(NodeId to, size_t size) {
  uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    number = said_[to];
  }
  auto message = message_of(Kind::chat, number, size);
  fill({transport_.self(), to, static_cast<TransferNumber>(number)}, body_after(message, 1 + sizeof number));
  if (!transport_.send(to, std::move(message))) return false;
  MutexLock lock(mutex_);
  ++said_[to];
  return true;
}

uint64_t TestPeer::heard(NodeId from) {
  MutexLock lock(mutex_);
  return heard_[from];
}

bool TestPeer::meet(uint32_t phase, const std::set<NodeId>& ranks, std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const NodeId rank : ranks) send(rank, message_of(Kind::phase, phase), patience);
  MutexLock lock(mutex_);
  while (!std::ranges::includes(arrived_[phase], ranks)) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    changed_.wait_until(lock, deadline);
  }
  return true;
}

uint64_t TestPeer::ticks() {
  MutexLock lock(mutex_);
  return ticks_;
}

Duration TestPeer::longest_gap() {
  MutexLock lock(mutex_);
  return longest_gap_;
}

int TestPeer::sending() {
  MutexLock lock(mutex_);
  return sending_;
}

uint64_t TestPeer::mistakes() {
  MutexLock lock(mutex_);
  return mistakes_;
}

}  // namespace clairfs
