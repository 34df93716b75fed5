#include "fs/control/socket.h"

#include <cerrno>
#include <cstring>
#include <thread>

#include <sys/socket.h>
#include <sys/un.h>

#include "plan/spec/plan_spec.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr int kSeconds = 60;  // no healthy run takes it

struct SocketFixture {
  Result<std::string> ask(std::string_view command) const {
    return ask_control_socket(socket->name(), command, kSeconds);
  }

  CapturedLog log;
  std::unique_ptr<ControlSocket> socket = std::move(*ControlSocket::open(
      [](std::string_view command) -> Result<std::string> {
        if (command == "fail") return Error{EBUSY, "line one\nand two"};
        if (command == "odd") return Error{EINVAL, "a \x1b[31mred\x07 word"};
        return "heard " + std::string(command);
      },
      log.logger()));
};

}  // namespace

TEST_CASE("a command is answered with the handler's text") {
  SocketFixture f;
  CHECK(f.socket->name().starts_with(kControlSocketPrefix));
  CHECK(f.ask("show").value() == "heard show");
  CHECK(f.ask("").value() == "heard ");
  CHECK(f.ask("two\nlines\n").value() == "heard two\nlines\n");
  const std::string long_one(kMaxPlanText, 'x');
  CHECK(f.ask(long_one).value() == "heard " + long_one);
}

TEST_CASE("a refusal comes with its number and its text, made harmless for a terminal") {
  SocketFixture f;
  const auto failed = f.ask("fail");
  REQUIRE(!failed);
  CHECK(failed.error().code == EBUSY);
  CHECK(failed.error().message.find("and two") != std::string::npos);
  const auto odd = f.ask("odd");
  REQUIRE(!odd);
  CHECK(odd.error().code == EINVAL);
  CHECK(odd.error().message.find('\x1b') == std::string::npos);
  CHECK(odd.error().message.find('\x07') == std::string::npos);
}

TEST_CASE("a command that is too long is refused, and the next one heard") {
  SocketFixture f;
  const auto refused = f.ask(std::string(kMaxPlanText + 1000, 'x'));
  REQUIRE(!refused);
  CHECK(refused.error().code == EMSGSIZE);
  CHECK(f.ask("show").value() == "heard show");
}

TEST_CASE("several clients at a time are answered one after the other") {
  SocketFixture f;
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 8; ++i) {
    clients.emplace_back([&, i] {
      const std::string command = "show " + std::to_string(i);
      const auto answer = f.ask(command);
      if (answer && *answer == "heard " + command) ++right;
    });
  }
  for (std::thread& client : clients) client.join();
  CHECK(right == 8);
}

TEST_CASE("a client that goes away without a word holds nobody up") {
  SocketFixture f;
  for (int i = 0; i < 3; ++i) {
    const Fd gone(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, f.socket->name().data(), f.socket->name().size());
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + f.socket->name().size());
    REQUIRE(::connect(gone.get(), static_cast<const sockaddr*>(static_cast<const void*>(&address)), length) ==
            0);
  }
  CHECK(f.ask("show").value() == "heard show");
}

TEST_CASE("a daemon that is gone is told from one that refuses") {
  std::string name;
  {
    const SocketFixture f;
    name = f.socket->name();
  }
  const auto answer = ask_control_socket(name, "show", kSeconds);
  REQUIRE(!answer);
  CHECK(answer.error().code == ECONNREFUSED);
}
