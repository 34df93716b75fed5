#include "net/meeting/meeting.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "cache/base/escaped.h"
#include "net/meeting/keyed_hash.h"
#include "net/meeting/pmi_relay.h"
#include "net/meeting/words.h"
#include "net/mpi/launch.h"

namespace clairfs {
namespace {

// Nodes that start together lose patience together, and node 0 is to do so first: it says to all who is
// missing, and would take one that left before for missing, too.
constexpr auto kLastWordPatience = std::chrono::seconds(2);

constexpr auto kBetweenTries = std::chrono::milliseconds(300);  // node 0 begins when it begins
constexpr auto kConnectPatience = std::chrono::seconds(5);      // a host that is up answers in milliseconds
constexpr auto kAnswerPatience = std::chrono::seconds(10);      // the host says something every second
constexpr auto kByePatience = std::chrono::seconds(1);
constexpr int kGlanceMs = 100;  // as a person notices

struct AddressList {
  explicit AddressList(addrinfo* found) : first(found) {}
  AddressList(const AddressList&) = delete;
  AddressList& operator=(const AddressList&) = delete;
  ~AddressList() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
  addrinfo* first;
};

// A port that nobody listens on may be given to the very socket that asks for it.
bool is_connected_to_itself(const Fd& socket) {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t here_length = sizeof here;
  socklen_t there_length = sizeof there;
  return ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &here_length) == 0 &&
         ::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&there), &there_length) == 0 &&
         here_length == there_length && std::memcmp(&here, &there, here_length) == 0;
}

Result<Fd> connect_to(const addrinfo& address, TimePoint until, const std::function<void()>& waiting) {
  Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, "socket");
  int error = ::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  while (error == EINPROGRESS && steady_now() < until) {
    pollfd event{socket.get(), POLLOUT, 0};
    socklen_t length = sizeof error;
    if (::poll(&event, 1, kGlanceMs) == 1) ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    if (waiting) waiting();
  }
  if (error == 0 && is_connected_to_itself(socket)) error = ECONNREFUSED;
  if (error != 0) return system_error(error == EINPROGRESS ? ETIMEDOUT : error, "connect");
  return socket;
}

// What is there of `line` after `start`; nothing if it begins otherwise.
std::optional<std::string> after(const std::string& line, std::string_view start) {
  if (!line.starts_with(start)) return std::nullopt;
  return line.substr(start.size());
}

}  // namespace

Meeting::Meeting(const JobPlace& place, MeetingOptions options)
    : place_(place), options_(std::move(options)), where_(options_.at.text()) {}

Result<std::unique_ptr<Meeting>> Meeting::gather(const JobPlace& place, MeetingOptions options, Logger& log) {
  std::unique_ptr<Meeting> meeting(new Meeting(place, std::move(options)));
  const MeetingOptions& o = meeting->options_;
  log.info("this is node {} of {}; the nodes meet at {}", place.self.value, place.size, meeting->where_);
  if (place.self == NodeId(0)) {
    auto host = MeetingHost::open(o.at, {place.size, o.secret}, log);
    if (!host) return host.error();
    meeting->host_ = std::move(*host);
  }
  Status met = meeting->meet(steady_now() + o.patience);
  if (met) return meeting;
  meeting->fail(met.error().message);
  return met.error();
}

Status Meeting::meet(TimePoint deadline) {
  for (;;) {
    switch (attempt(deadline)) {
      case Try::formed:
        return {};
      case Try::failed:
        return outcome_;
      case Try::again:
        break;
    }
    missing_.clear();
    const TimePoint next = std::min(deadline, steady_now() + kBetweenTries);
    while (steady_now() < next) {
      ::poll(nullptr, 0, kGlanceMs);
      if (options_.waiting) options_.waiting();
    }
    if (steady_now() >= deadline) return Error{ETIMEDOUT, timeout_text()};
  }
}

Meeting::Try Meeting::attempt(TimePoint deadline) {
  if (!connect(deadline)) return Try::again;
  if (!introduce(deadline)) return outcome_ ? Try::again : Try::failed;
  return await_others(host_ ? deadline : deadline + kLastWordPatience);
}

// Names are looked up each time: some exist only when node 0 runs.
bool Meeting::connect(TimePoint deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(options_.at.port);
  const int unknown = ::getaddrinfo(options_.at.host.c_str(), port.c_str(), &hints, &found);
  const AddressList addresses(found);
  if (unknown != 0) trouble_ = ::gai_strerror(unknown);
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    auto socket = connect_to(*address, std::min(deadline, steady_now() + kConnectPatience), options_.waiting);
    if (socket) {
      to_host_ = LineSocket(std::move(*socket), kLongestLine);
      return true;
    }
    trouble_ = socket.error().message;
  }
  return false;
}

// The next line of the host; none, with the trouble, when it says nothing or is gone.
std::optional<std::string> Meeting::await_line(TimePoint until) {
  for (;;) {
    if (auto line = to_host_.next()) return line;
    if (steady_now() >= until) {
      trouble_ = "it takes connections, and says nothing";
      return std::nullopt;
    }
    const bool open = turn_within(to_host_, kGlanceMs);
    if (options_.waiting) options_.waiting();
    if (open) continue;
    if (auto line = to_host_.next()) return line;
    trouble_ = "it has closed the connection";
    return std::nullopt;
  }
}

bool Meeting::introduce(TimePoint deadline) {
  const auto soon = [&] { return std::min(deadline, steady_now() + kAnswerPatience); };
  const auto greeting = await_line(soon());
  if (!greeting) return false;
  MeetingNonces nonces;
  if (const auto nonce = after(*greeting, kMeetingGreeting)) {
    nonces.host = *nonce;
  } else {
    give_up(EPROTO,
            fmt::format("what answers at {} is no node 0 of this version of clairfs: another program's port?",
                        where_));
    return false;
  }
  const auto nonce = random_word();
  if (!nonce) {
    outcome_ = nonce.error();
    return false;
  }
  nonces.node = *nonce;
  to_host_.send(fmt::format("join {} {} {} {}\n", place_.self.value, place_.size, nonces.node,
                            node_proof(options_.secret, nonces, place_)));
  const auto answer = await_line(soon());
  if (!answer) return false;
  if (const auto why = after(*answer, "refused ")) {
    give_up(EPERM, fmt::format("node 0 at {} refuses this node: {}", where_, escaped(*why)));
    return false;
  }
  const auto proof = after(*answer, "joined ");
  if (!proof || !same_word(*proof, host_proof(options_.secret, nonces, place_))) {
    give_up(EPERM, fmt::format("what answers at {} does not know the secret of this job", where_));
    return false;
  }
  return true;
}

Meeting::Try Meeting::await_others(TimePoint deadline) {
  for (;;) {
    const auto line = await_line(std::min(deadline, steady_now() + kAnswerPatience));
    if (line && *line == "formed") return Try::formed;
    if (const auto why = after(line.value_or(""), "failed ")) return give_up(ECANCELED, escaped(*why));
    if (line && line->starts_with("missing ")) missing_ = *line;
    if (steady_now() >= deadline) return give_up(ETIMEDOUT, timeout_text());
    if (!line) return Try::again;
  }
}

Meeting::Try Meeting::give_up(int code, std::string why) {
  outcome_ = Error{code, std::move(why)};
  return Try::failed;
}

std::string Meeting::timeout_text() const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(options_.patience).count();
  if (const std::string missing = missing_text(missing_, place_.size, where_); !missing.empty())
    return fmt::format("{} within {} s (--job-timeout)", escaped(missing), seconds);
  if (host_) {
    return fmt::format("node 0 listens, but {} does not lead to it ({}): is that an address of this machine?",
                       where_, trouble_);
  }
  return fmt::format(
      "node 0 at {} does not answer within {} s ({}): is it mounted with the same --job? A job "
      "that has formed takes no node any more",
      where_, seconds, trouble_);
}

Status Meeting::serve_mpi() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return system_error(errno, "socketpair");
  to_mpi_ = LineSocket(Fd(ends[1]), kLongestLine);
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake_) return system_error(errno, "eventfd");
  forget_launcher();
  ::setenv("PMI_FD", std::to_string(ends[0]).c_str(), 1);  // MPI's from now on
  ::setenv("PMI_RANK", std::to_string(place_.self.value).c_str(), 1);
  ::setenv("PMI_SIZE", std::to_string(place_.size).c_str(), 1);
  thread_ = NamedThread("pmi-relay", [this] { relay(); });
  return {};
}

void Meeting::relay() {
  PmiRelay relay(place_);
  const auto pass_on = [&](const PmiRelay::Outcome& outcome) {
    to_mpi_.send(outcome.to_mpi);
    to_host_.send(outcome.to_host);
  };
  bool host_there = true;
  for (;;) {
    std::array<pollfd, 3> events = {pollfd{wake_.get(), POLLIN, 0}, pollfd{to_mpi_.fd(), to_mpi_.events(), 0},
                                    pollfd{host_there ? to_host_.fd() : -1, to_host_.events(), 0}};
    ::poll(events.data(), events.size(), -1);
    if (events[0].revents != 0) break;
    if (!to_mpi_.turn()) return fail("MPI has closed its line to the launcher");
    while (const auto line = to_mpi_.next()) pass_on(relay.from_mpi(*line));
    if (host_there) host_there = to_host_.turn();
    while (const auto line = to_host_.next()) {
      if (const auto why = after(*line, "failed ")) fail(escaped(*why));
      pass_on(relay.from_host(*line));
    }
    // Node 0 goes when its own MPI is initialised, and nobody needs it any more.
    if (!host_there && relay.in_barrier())
      fail(fmt::format("node 0 at {} ended while the job formed", where_));
    to_mpi_.flush();
  }
  {
    MutexLock lock(mutex_);
    if (!done_) return;
  }
  to_host_.send("bye\n");
  const TimePoint until = steady_now() + kByePatience;
  while (host_there && !to_host_.all_sent() && steady_now() < until)
    host_there = turn_within(to_host_, kGlanceMs);
}

void Meeting::fail(const std::string& why) {
  MutexLock lock(mutex_);
  if (failure_) failure_ = Error{ECANCELED, why};
}

Status Meeting::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void Meeting::done() {
  MutexLock lock(mutex_);
  done_ = true;
}

Meeting::~Meeting() {
  if (thread_.joinable()) {
    ::eventfd_write(wake_.get(), 1);
    thread_.join();
  }
  MutexLock lock(mutex_);
  if (done_) return;
  static_cast<void>(to_mpi_.release());
  if (host_) host_->give_up(failure_ ? "node 0 has given up" : failure_.error().message);
}

}  // namespace clairfs
