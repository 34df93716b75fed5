#include "fs/control/socket.h"

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <random>

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

// A client of this machine sends its request at once; one that does not is not waited for.
constexpr int kRequestSeconds = 5;

using SteadyTime = std::chrono::steady_clock::time_point;

constexpr const char* kNotForStrangers =
    "only the mount's user and root may control it; mount for yourself, or ask one of them";
constexpr size_t kMostRequest = kMaxPlanText + 64;  // a plan and the command's word

sockaddr_un address_of(const std::string& name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof address.sun_path - 1);
  std::memcpy(address.sun_path + 1, name.data(), size);  // a leading NUL: the abstract namespace
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

SteadyTime seconds_from_now(int seconds) {
  return std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
}

void set_timeouts(int fd, int seconds) {
  const timeval limit{seconds, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Waits until the other side sent something or ended. False at the deadline.
bool wait_readable(int fd, SteadyTime deadline) {
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd event{fd, POLLIN, 0};
    if (::poll(&event, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

// Everything up to the end; what is longer than `most` bytes is read as well, but not kept. Errors:
// ETIMEDOUT when the end has not come by the deadline, EMSGSIZE.
Result<std::string> receive_all(int fd, size_t most, SteadyTime deadline) {
  std::string text;
  bool too_long = false;
  char buffer[16 << 10];
  for (;;) {
    if (!wait_readable(fd, deadline))
      return Error{ETIMEDOUT, "the other side of the control socket fell silent"};
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    // A daemon that answers without hearing us out resets the connection after its answer.
    if (n == 0 || (n < 0 && errno == ECONNRESET && !text.empty())) break;
    if (n < 0) return system_error(errno, "read from the control socket");
    too_long = too_long || text.size() + static_cast<size_t>(n) > most;
    if (!too_long) text.append(buffer, static_cast<size_t>(n));
  }
  if (too_long)
    return Error{EMSGSIZE, fmt::format("more than the {} bytes that the control socket takes", most)};
  return text;
}

bool may_speak(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == 0 || peer.uid == ::geteuid());
}

}  // namespace

Result<std::unique_ptr<ControlSocket>> ControlSocket::open(Handler handler, Logger& log) {
  const std::string name =
      fmt::format("{}{}.{:08x}", kControlSocketPrefix, ::getpid(), std::random_device()());
  Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener) return system_error(errno, "make the control socket");
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  const auto* generic = static_cast<const sockaddr*>(static_cast<const void*>(&address));
  if (::bind(listener.get(), generic, length) != 0 || ::listen(listener.get(), 16) != 0) {
    return system_error(errno, "bind the control socket");
  }
  Fd stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return system_error(errno, "make an eventfd");
  return std::unique_ptr<ControlSocket>(
      new ControlSocket(std::move(listener), std::move(stop), name, std::move(handler), log));
}

ControlSocket::ControlSocket(Fd listener, Fd stop, std::string name, Handler handler, Logger& log)
    : listener_(std::move(listener)),
      stop_(std::move(stop)),
      name_(std::move(name)),
      handler_(std::move(handler)),
      log_(log),
      thread_("control", [this] { serve(); }) {}

ControlSocket::~ControlSocket() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ControlSocket::serve() {
  pollfd wait[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(wait, 2, -1) < 0 && errno != EINTR) return;
    if ((wait[1].revents & POLLIN) != 0) return;
    if ((wait[0].revents & POLLIN) == 0) continue;
    const Fd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) {
      answer(connection);
    } else {
      ::poll(&wait[1], 1, 50);  // without descriptors it stays pending: look again in a while
    }
  }
}

void ControlSocket::answer(const Fd& connection) {
  set_timeouts(connection.get(), kRequestSeconds);
  // A stranger is not waited for: one that says nothing could keep the others out.
  const bool stranger = !may_speak(connection.get());
  const auto request = stranger
                           ? Result<std::string>(Error{EPERM, kNotForStrangers})
                           : receive_all(connection.get(), kMostRequest, seconds_from_now(kRequestSeconds));
  const auto result = request ? handler_(*request) : request;
  const bool sent = result ? send_all(connection.get(), "ok\n" + *result)
                           : send_all(connection.get(), fmt::format("error {}\n{}", result.error().code,
                                                                    result.error().message));
  if (!sent) log_.debug("a client of the control socket went away before its answer");
}

Result<std::string> ask_control_socket(const std::string& name, std::string_view command,
                                       int timeout_seconds) {
  const Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return system_error(errno, "make a socket");
  set_timeouts(fd.get(), timeout_seconds);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  if (::connect(fd.get(), static_cast<const sockaddr*>(static_cast<const void*>(&address)), length) != 0) {
    return system_error(errno, "speak to the daemon");
  }
  // A client that is refused may find the other side closed already; the answer is there all the same.
  const bool sent = send_all(fd.get(), command) && ::shutdown(fd.get(), SHUT_WR) == 0;
  if (!sent && errno != EPIPE && errno != ENOTCONN) return system_error(errno, "speak to the daemon");
  constexpr size_t kMostAnswer = 64 << 20;
  const auto answer = receive_all(fd.get(), kMostAnswer, seconds_from_now(timeout_seconds));
  if (!answer && answer.error().code == ETIMEDOUT) {
    return Error{
        ETIMEDOUT,
        fmt::format("the daemon did not answer within {} s: a plan is being registered, or its list file "
                    "or the source does not answer; see the mount's log",
                    timeout_seconds)};
  }
  if (!answer) return answer.error();
  const size_t line = answer->find('\n');
  const std::string text = line == std::string::npos ? "" : answer->substr(line + 1);
  if (answer->starts_with("ok\n")) return text;
  int code = 0;
  constexpr size_t kWord = std::string_view("error ").size();
  if (!answer->starts_with("error ") || line == std::string::npos)
    return Error{EPROTO, "the daemon gave no answer"};
  std::from_chars(answer->data() + kWord, answer->data() + line, code);
  return Error{code == 0 ? EPROTO : code, escape_controls(text)};
}

}  // namespace clairfs
