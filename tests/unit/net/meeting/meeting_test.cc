#include "net/meeting/meeting.h"

#include <cerrno>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <spdlog/sinks/base_sink.h>
#include <sys/socket.h>

#include "net/meeting/words.h"
#include "net/mpi/launch.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

using Met = Result<std::unique_ptr<Meeting>>;

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

/// A socket that listens on a port of its own.
Fd listen_somewhere(uint16_t& port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::listen(socket.get(), 16) == 0);
  REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  port = ntohs(address.sin_port);
  return socket;
}

uint16_t free_port() {
  uint16_t port = 0;
  listen_somewhere(port);
  return port;
}

Fd connect_to(uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = loopback(port);
  for (int i = 0; i < 500; ++i) {
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return socket;
    ::poll(nullptr, 0, 10);
  }
  FAIL("nobody listens");
  return socket;
}

void say(const Fd& socket, const std::string& text) {
  static_cast<void>(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL));
}

std::string read_line(int fd) {
  std::string line;
  char c = 0;
  pollfd event{fd, POLLIN, 0};
  while (::poll(&event, 1, 20'000) == 1 && ::recv(fd, &c, 1, 0) == 1 && c != '\n') line += c;
  return line;
}

/// What a node logs, to be looked at while it logs.
class Lines final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  bool have(std::string_view part) {
    const std::lock_guard lock(mutex_);
    return text_.find(part) != std::string::npos;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    text_.append(message.payload.data(), message.payload.size()) += '\n';
  }
  void flush_() override {}
  std::string text_;
};

/// A node that meets the others on a thread of its own.
class Node {
 public:
  Node(uint32_t rank, uint32_t nodes, uint16_t port, const std::string& secret = "", Duration patience = 2min,
       const std::string& host = "127.0.0.1") {
    MeetingOptions options{{host, port}, secret, patience, {}};
    thread_ = NamedThread("node", [this, rank, nodes, options] {
      met_.emplace(Meeting::gather({NodeId(rank), nodes}, options, log_));
    });
  }
  /// Waits for the outcome.
  Met& met() {
    if (thread_.joinable()) thread_.join();
    return *met_;
  }
  std::string why() { return met() ? "" : met().error().message; }
  bool refused(int code, const std::string& naming) {
    INFO(why());
    CHECK_FALSE(met());
    const bool right = !met() && met().error().code == code && why().find(naming) != std::string::npos;
    CHECK(right);
    return right;
  }
  /// After met(): the descriptor that MPI would get.
  int serve_mpi() {
    REQUIRE((*met())->serve_mpi());
    return std::atoi(std::getenv("PMI_FD"));
  }
  void done() {
    (*met())->done();
    met_.reset();
  }
  bool has_logged(std::string_view part) { return lines_->have(part); }
  void await(std::string_view part) {
    const auto deadline = std::chrono::steady_clock::now() + 2min;
    while (!has_logged(part) && std::chrono::steady_clock::now() < deadline) ::poll(nullptr, 0, 10);
    REQUIRE(has_logged(part));
  }

 private:
  const std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
  Logger log_{"node", lines_};
  std::optional<Met> met_;
  NamedThread thread_;
};

/// The line of a node that has joined. It says nothing more.
Fd join_as(uint32_t rank, uint32_t nodes, uint16_t port) {
  Fd socket = connect_to(port);
  const std::string greeting = read_line(socket.get());
  REQUIRE(greeting.starts_with(kMeetingGreeting));
  const MeetingNonces nonces{greeting.substr(kMeetingGreeting.size()), "n"};
  say(socket, fmt::format("join {} {} n {}\n", rank, nodes, node_proof("", nonces, {NodeId(rank), nodes})));
  REQUIRE(read_line(socket.get()).starts_with("joined "));
  return socket;
}

void mpi_says(int fd, const std::string& line) {
  const std::string text = line + "\n";
  REQUIRE(::send(fd, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

}  // namespace

TEST_CASE("nodes meet, and their MPIs exchange what they put") {
  const uint16_t port = free_port();
  const std::string secret = "a long line";
  constexpr uint32_t kNodes = 3;
  std::vector<std::unique_ptr<Node>> nodes;
  for (const uint32_t rank : {2, 0, 1}) nodes.push_back(std::make_unique<Node>(rank, kNodes, port, secret));
  std::vector<int> fds;
  for (auto& node : nodes) {
    INFO(node->why());
    REQUIRE(node->met());
    fds.push_back(node->serve_mpi());
  }
  CHECK(std::getenv("PMI_SIZE") == std::string("3"));
  CHECK(std::getenv("PMI_RANK") == std::string("1"));
  for (int round = 0; round < 3; ++round) {
    for (const int fd : fds) {
      mpi_says(fd, fmt::format("cmd=put kvsname=clairfs key=of{} value=in round {}", fd, round));
      CHECK(read_line(fd) == "cmd=put_result rc=0 msg=success");
      mpi_says(fd, "cmd=barrier_in");
    }
    for (const int fd : fds) CHECK(read_line(fd) == "cmd=barrier_out rc=0");
    for (const int fd : fds) {
      for (const int other : fds) {
        mpi_says(fd, fmt::format("cmd=get kvsname=clairfs key=of{}", other));
        CHECK(read_line(fd) == fmt::format("cmd=get_result rc=0 msg=success value=in round {}", round));
      }
    }
  }
  nodes[1]->done();  // rank 0's, first: nobody needs it any more
  for (auto& node : {nodes[0].get(), nodes[2].get()}) {
    CHECK((*node->met())->failure());
    node->done();
  }
  for (const int fd : fds) ::close(fd);
  forget_launcher();
}

TEST_CASE("a node that is missing is named by all others") {
  const uint16_t port = free_port();
  Node zero(0, 3, port, "", 5s);
  Node one(1, 3, port, "", 2min);
  zero.refused(ETIMEDOUT, fmt::format("node 2 of 3 has not come to 127.0.0.1:{} within 5 s", port));
  one.refused(ECANCELED, fmt::format("node 2 of 3 has not come to 127.0.0.1:{}", port));
}

TEST_CASE("nodes that come together are not each announced to all others") {
  const uint16_t port = free_port();
  constexpr uint32_t kNodes = 40;
  Node zero(0, kNodes, port);
  const auto began = std::chrono::steady_clock::now();
  std::vector<Fd> others;
  for (uint32_t rank = 1; rank < kNodes; ++rank) others.push_back(join_as(rank, kNodes, port));
  int told = 0;
  for (std::string line = read_line(others[0].get()); line != "formed"; line = read_line(others[0].get())) {
    REQUIRE(line.starts_with("missing "));
    ++told;
  }
  // At the beginning, each tenth of a second, and as much again for one that came late.
  const auto took = std::chrono::steady_clock::now() - began;
  CHECK(told <= 2 + took / 100ms);
  CHECK(zero.met());
}

TEST_CASE("a node whose patience ends first says whom it has waited for") {
  const uint16_t port = free_port();
  Node zero(0, 12, port, "", 8s);
  Node one(1, 12, port, "", 3s);
  one.refused(ETIMEDOUT, "nodes 2, 3, 4, 5, 6, 7, 8, 9 and 2 more of 12 have not come");
  zero.refused(ETIMEDOUT, "nodes 1, 2, 3, 4, 5, 6, 7, 8 and 3 more of 12 have not come");
}

TEST_CASE("where node 0 is absent its address is named") {
  const uint16_t port = free_port();
  Node one(1, 2, port, "", 500ms);
  one.refused(ETIMEDOUT, fmt::format("node 0 at 127.0.0.1:{} does not answer", port));
  CHECK(one.why().find("Connection refused") != std::string::npos);
  Node nowhere(1, 2, port, "", 500ms, "no-such-host.invalid");
  nowhere.refused(ETIMEDOUT, "no-such-host.invalid");
}

TEST_CASE("a port in use is refused") {
  uint16_t port = 0;
  const Fd other = listen_somewhere(port);
  Node zero(0, 2, port);
  zero.refused(EADDRINUSE, fmt::format("port {} is in use", port));
}

TEST_CASE("another program at the address is not taken for node 0") {
  uint16_t port = 0;
  const Fd other = listen_somewhere(port);
  {
    Node one(1, 2, port, "", 1s);  // it says nothing
    one.refused(ETIMEDOUT, "it takes connections, and says nothing");
  }
  Node one(1, 2, port);
  const NamedThread talks("talks", [&] {
    for (int i = 0; i < 2; ++i) {  // the first is left of the node above
      const Fd guest(::accept4(other.get(), nullptr, nullptr, SOCK_CLOEXEC));
      say(guest, "SSH-2.0-OpenSSH_9.2\r\n");
      if (i == 1) read_line(guest.get());
    }
  });
  one.refused(EPROTO, "another program's port?");
}

TEST_CASE("an impostor that does not know the secret is found out") {
  uint16_t port = 0;
  const Fd impostor = listen_somewhere(port);
  Node one(1, 2, port, "a secret");
  const NamedThread plays("plays", [&] {
    const Fd guest(::accept4(impostor.get(), nullptr, nullptr, SOCK_CLOEXEC));
    say(guest, fmt::format("{}abc\n", kMeetingGreeting));
    const auto join = read_line(guest.get());
    const auto words = words_of(join);
    // Even the node's own proof sent back is none.
    say(guest, fmt::format("joined {}\n", words.size() == 5 ? words[4] : ""));
    read_line(guest.get());
  });
  one.refused(EPERM, "does not know the secret");
}

TEST_CASE("who does not belong is told why, and the job goes on") {
  const uint16_t port = free_port();
  Node zero(0, 3, port, "right");
  Node one(1, 3, port, "right");
  Node(1, 3, port, "wrong").refused(EPERM, "its secret is not that of node 0");
  Node(1, 3, port, "").refused(EPERM, "its secret is not that of node 0");
  Node(2, 4, port, "right").refused(EPERM, "it was given --nodes 4, node 0 --nodes 3");
  Node(3, 3, port, "right").refused(EPERM, "--rank 3 is not below --nodes 3");
  zero.await("node 1 of 3 has come");
  Node(1, 3, port, "right").refused(EPERM, "node 1 of 3 is there already, from 127.0.0.1");
  Node two(2, 3, port, "right");
  for (Node* node : {&zero, &one, &two}) {
    INFO(node->why());
    CHECK(node->met());
  }
  Node(2, 3, port, "right").refused(EPERM, "there already");
}

TEST_CASE("a second node 0 on another machine is refused") {
  const uint16_t port = free_port();
  Node zero(0, 2, port, "", 2min, "127.0.0.1");
  zero.await("node 0 of 2 has come");
  // 127.0.0.9 is an address of its own, where the port is free; it joins itself there and waits alone.
  Node again(0, 2, port, "", 1s, "127.0.0.9");
  again.refused(ETIMEDOUT, "node 1 of 2 has not come to 127.0.0.9");
  Node one(1, 2, port);
  CHECK(one.met());
  CHECK(zero.met());
}

TEST_CASE("garbage does the job no harm") {
  const uint16_t port = free_port();
  Node zero(0, 2, port, "secret");
  std::vector<Fd> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(connect_to(port));  // more than it keeps
  for (const std::string& text : std::vector<std::string>{
           "", "\n", "GET / HTTP/1.1\r\nHost: node0\r\n\r\n", std::string(100'000, 'x'),
           std::string(5'000, '\0'), "join\n", "join 1 2\n", "join 1 2 3 4\n", "join -1 2 n p\n",
           "join 99999999999 2 n p\n", "join 1 2 n " + std::string(128, '0') + "\n",
           "barrier\nput a b\nbye\nbarrier\n", "joined x\nformed\n"}) {
    const Fd guest = connect_to(port);
    say(guest, text);
  }
  Node one(1, 2, port, "secret");
  INFO(one.why());
  CHECK(one.met());
  CHECK(zero.met());
}

TEST_CASE("a node that leaves before the job forms may come again") {
  const uint16_t port = free_port();
  Node zero(0, 3, port);
  Node(1, 3, port, "", 2s).refused(ETIMEDOUT, "node 2 of 3 has not come");
  Node one(1, 3, port);
  Node two(2, 3, port);
  for (Node* node : {&zero, &one, &two}) CHECK(node->met());
  CHECK(zero.has_logged("node 1 of 3, at 127.0.0.1, has left"));
}

TEST_CASE("a node that ends while the job forms fails it on all, with its name") {
  const uint16_t port = free_port();
  Node zero(0, 3, port);
  Node one(1, 3, port);
  auto two = std::make_unique<Node>(2, 3, port);
  REQUIRE(two->met());
  REQUIRE(zero.met());
  REQUIRE(one.met());
  const int first = zero.serve_mpi();
  const int second = one.serve_mpi();
  mpi_says(first, "cmd=barrier_in");
  mpi_says(second, "cmd=barrier_in");
  two->met() = Error{EIO, "ended"};
  for (Node* node : {&zero, &one}) {
    const auto deadline = std::chrono::steady_clock::now() + 2min;
    while ((*node->met())->failure() && std::chrono::steady_clock::now() < deadline) ::poll(nullptr, 0, 10);
    CHECK((*node->met())
              ->failure()
              .error()
              .message.find("node 2 of 3, at 127.0.0.1, ended while the job formed") != std::string::npos);
  }
  pollfd event{first, POLLIN, 0};
  CHECK(::poll(&event, 1, 100) == 0);  // MPI is told nothing, else it would end the process
  forget_launcher();
}

TEST_CASE("the end of node 0 while the job forms is seen") {
  const uint16_t port = free_port();
  auto zero = std::make_unique<Node>(0, 2, port);
  Node one(1, 2, port);
  REQUIRE(one.met());
  REQUIRE(zero->met());
  const int fd = one.serve_mpi();
  mpi_says(fd, "cmd=barrier_in");
  zero->met() = Error{EIO, "ended"};
  const auto deadline = std::chrono::steady_clock::now() + 2min;
  while ((*one.met())->failure() && std::chrono::steady_clock::now() < deadline) ::poll(nullptr, 0, 10);
  CHECK_FALSE((*one.met())->failure());
  forget_launcher();
}

TEST_CASE("a signal ends the wait") {
  const uint16_t port = free_port();
  CapturedLog log;
  int calls = 0;
  MeetingOptions options{{"127.0.0.1", port}, "", 30s, [&] {
                           if (++calls == 3) throw std::runtime_error("ended");  // as _Exit() would
                         }};
  CHECK_THROWS(Meeting::gather({NodeId(0), 2}, options, log.logger()));
}
