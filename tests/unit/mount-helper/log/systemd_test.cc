#include "mount-helper/log/systemd.h"

#include <array>
#include <cstdlib>
#include <string>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "tests/support/catch.h"
#include "tests/unit/mount-helper/temporary_directory.h"

using namespace clairfs;

namespace {

// What systemd is for a service: a socket that $NOTIFY_SOCKET names.
class Manager {
 public:
  Manager() : path_(directory_.path() + "/notify"), socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    address_.sun_family = AF_UNIX;
    REQUIRE(path_.size() < sizeof(address_.sun_path));
    path_.copy(address_.sun_path, path_.size());
    REQUIRE(::bind(socket_.get(), address(), sizeof(address_)) == 0);
    ::setenv("NOTIFY_SOCKET", path_.c_str(), 1);
  }
  ~Manager() { ::unsetenv("NOTIFY_SOCKET"); }
  Manager(const Manager&) = delete;
  Manager& operator=(const Manager&) = delete;

  /// Leaves it no room for a message. Each sender has room for some of them only.
  void fill() const {
    for (int sent = 1; sent > 0;) {
      const Fd sender(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sent = 0;
      while (::sendto(sender.get(), "x", 1, 0, address(), sizeof(address_)) == 1) ++sent;
    }
  }
  /// Empty if none has come.
  std::string next_message() const {
    std::array<char, 100> text{};
    const ssize_t length = ::recv(socket_.get(), text.data(), text.size(), MSG_DONTWAIT);
    return length > 0 ? std::string(text.data(), static_cast<size_t>(length)) : "";
  }

 private:
  const sockaddr* address() const { return reinterpret_cast<const sockaddr*>(&address_); }

  const TemporaryDirectory directory_;
  const std::string path_;
  const Fd socket_;
  sockaddr_un address_{};
};

}  // namespace

TEST_CASE("the service manager is told") {
  const Manager manager;
  notify_service_manager("READY=1");
  CHECK(manager.next_message() == "READY=1");
  CHECK(manager.next_message().empty());
}

TEST_CASE("a service manager that takes nothing is waited for in vain, but not for ever") {
  const Manager manager;
  manager.fill();
  notify_service_manager("READY=1");
  std::string message;
  while (!(message = manager.next_message()).empty()) CHECK(message == "x");
}
