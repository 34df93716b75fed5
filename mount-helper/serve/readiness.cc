#include "mount-helper/serve/readiness.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace clairfs {
namespace {

// The outcome that `line` carries; none for progress.
std::optional<Status> parse_line(const std::string& line,
                                 const std::function<void(const std::string&)>& on_progress) {
  if (line.starts_with("P ")) {
    on_progress(line.substr(2));
    return std::nullopt;
  }
  if (line == "R") return Status();
  char* end = nullptr;
  const long code = line.starts_with("E ") ? std::strtol(line.c_str() + 2, &end, 10) : 0;
  if (code <= 0) return Error{EPROTO, "the daemon sent what is not understood: " + line};
  return Error{static_cast<int>(code), *end == ' ' ? end + 1 : end};
}

}  // namespace

void ReadinessWriter::send(std::string line) {
  if (!pipe_) return;
  std::replace(line.begin(), line.end(), '\n', ' ');
  line += '\n';
  // SIGPIPE would end the daemon if the waiting command was killed. It is held back in this thread, and taken
  // off should it have been raised.
  sigset_t pipe_signal;
  sigset_t previous;
  sigemptyset(&pipe_signal);
  sigaddset(&pipe_signal, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &pipe_signal, &previous);
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t sent = ::write(pipe_.get(), rest.data(), rest.size());
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) {
      if (errno == EPIPE && sigismember(&previous, SIGPIPE) == 0) {
        constexpr timespec kAtOnce{};
        sigtimedwait(&pipe_signal, nullptr, &kAtOnce);
      }
      pipe_.reset();
      break;
    }
    rest.remove_prefix(static_cast<size_t>(sent));
  }
  pthread_sigmask(SIG_SETMASK, &previous, nullptr);
}

void ReadinessWriter::progress(std::string_view text) {
  send("P " + std::string(text));
}

void ReadinessWriter::finish(const Status& status) {
  send(status ? "R" : "E " + std::to_string(status.error().code) + " " + status.error().message);
  pipe_.reset();
}

Status ReadinessReader::wait(const std::function<void(const std::string&)>& on_progress, int interrupt_fd) {
  std::string received;
  std::array<char, 4096> buffer;
  for (;;) {
    std::array<pollfd, 2> events = {pollfd{pipe_.get(), POLLIN, 0}, pollfd{interrupt_fd, POLLIN, 0}};
    if (::poll(events.data(), events.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return system_error(errno, "wait for the daemon");
    }
    if (events[1].revents != 0) return Error{EINTR, "interrupted"};
    const ssize_t got = ::read(pipe_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{EPIPE, "the daemon ended before the mount was usable"};
    received.append(buffer.data(), static_cast<size_t>(got));
    for (size_t end = 0; (end = received.find('\n')) != std::string::npos; received.erase(0, end + 1)) {
      if (auto outcome = parse_line(received.substr(0, end), on_progress)) return *outcome;
    }
  }
}

Result<ReadinessPipe> make_readiness_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(errno, "make a pipe");
  return ReadinessPipe{ReadinessReader(Fd(ends[0])), ReadinessWriter(Fd(ends[1]))};
}

}  // namespace clairfs
