#include "net/meeting/host.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "cache/base/escaped.h"
#include "cache/base/text.h"
#include "net/meeting/keyed_hash.h"
#include "net/transport/descriptors.h"

namespace clairfs {
namespace {

constexpr auto kTellEvery = std::chrono::seconds(1);  // as people look at a wait; and keeps connections alive
// A thousand nodes that come together would be half a million lines if all were told of each.
constexpr auto kBetweenTellings = std::chrono::milliseconds(100);
constexpr int kPollMs = 200;  // how late an overdue stranger is noticed
constexpr auto kGoodbyePatience = std::chrono::seconds(1);
// A node that lost its power is noticed so late; a replacement of it is refused until then.
constexpr unsigned kUnackedMs = 10'000;
// More at once than port scanners and probes are; beyond, the oldest is dropped.
constexpr size_t kMostStrangers = 256;
constexpr unsigned kRefusalsLogged = 20;
// What MPI puts is a few addresses of some hundred bytes.
constexpr size_t kMostPutBytes = 1 << 20;
constexpr auto kDescriptorPause = std::chrono::milliseconds(500);

void set_option(const Fd& socket, int level, int option, unsigned value) {
  ::setsockopt(socket.get(), level, option, &value, sizeof value);
}

Result<Fd> listen_at(const sockaddr* address, socklen_t length) {
  Fd socket(::socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return system_error(errno, "socket");
  set_option(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (address->sa_family == AF_INET6) set_option(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address, length) != 0) return system_error(errno, "bind");
  if (::listen(socket.get(), SOMAXCONN) != 0) return system_error(errno, "listen");
  return socket;
}

Result<Fd> listen_on_all(uint16_t port) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_any;
  six.sin6_port = htons(port);
  auto socket = listen_at(reinterpret_cast<const sockaddr*>(&six), sizeof six);
  if (socket || socket.error().code != EAFNOSUPPORT) return socket;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  return listen_at(reinterpret_cast<const sockaddr*>(&four), sizeof four);
}

Result<Fd> listen_on(const HostPort& at) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found) != 0)
    return listen_on_all(at.port);
  auto socket = listen_at(found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  // A service's or a router's address, or another machine's, which the node itself finds out (meeting.cc).
  if (!socket && socket.error().code == EADDRNOTAVAIL) return listen_on_all(at.port);
  return socket;
}

std::string address_text(const sockaddr_storage& address, socklen_t length) {
  char host[NI_MAXHOST] = "?";
  ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, nullptr, 0,
                NI_NUMERICHOST);
  constexpr std::string_view kMapped = "::ffff:";  // IPv4, as an IPv6 socket sees it
  const std::string_view text(host);
  return std::string(text.starts_with(kMapped) ? text.substr(kMapped.size()) : text);
}

}  // namespace

Result<std::unique_ptr<MeetingHost>> MeetingHost::open(const HostPort& at, MeetingHostOptions options,
                                                       Logger& log) {
  auto listener = listen_on(at);
  if (!listener && listener.error().code == EADDRINUSE) {
    return Error{EADDRINUSE,
                 fmt::format("port {} is in use on this machine, perhaps by another job; give --job "
                             "another one on all nodes",
                             at.port)};
  }
  if (!listener)
    return Error{listener.error().code, fmt::format("listen on {}: {}", at.text(), listener.error().message)};
  Fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return system_error(errno, "eventfd");
  (void)allow_descriptors(options.nodes);
  return std::unique_ptr<MeetingHost>(
      new MeetingHost(std::move(*listener), std::move(wake), at, std::move(options), log));
}

MeetingHost::MeetingHost(Fd listener, Fd wake, const HostPort& at, MeetingHostOptions options, Logger& log)
    : listener_(std::move(listener)),
      wake_(std::move(wake)),
      where_(at.text()),
      options_(std::move(options)),
      log_(log),
      seats_(options_.nodes),
      next_telling_(steady_now()),
      accept_again_(steady_now()),
      thread_("job-host", [this] { run(); }) {}

MeetingHost::~MeetingHost() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
}

void MeetingHost::give_up(const std::string& why) {
  MutexLock lock(mutex_);
  why_ = why;
}

void MeetingHost::run() {
  for (;;) {
    wait_for_events();
    {
      MutexLock lock(mutex_);
      if (ending_) break;
    }
    if (steady_now() >= accept_again_) take_in();
    for (auto guest = guests_.begin(); guest != guests_.end();) {
      const bool open = guest->line.turn();
      hear(*guest);
      if (open && !(guest->leaving && guest->line.all_sent())) {
        ++guest;
        continue;
      }
      lose(*guest);
      guest = guests_.erase(guest);
    }
    drop_the_overdue();
    if (!formed_ && !failed_ && steady_now() >= next_telling_) {
      last_telling_ = steady_now();
      next_telling_ = last_telling_ + kTellEvery;
      tell_nodes(missing_line(missing()));
    }
  }
  say_goodbye();
}

void MeetingHost::wait_for_events() {
  std::vector<pollfd> events = {{wake_.get(), POLLIN, 0}};
  if (steady_now() >= accept_again_) events.push_back({listener_.get(), POLLIN, 0});
  for (const Guest& guest : guests_) events.push_back({guest.line.fd(), guest.line.events(), 0});
  ::poll(events.data(), events.size(), kPollMs);
}

void MeetingHost::take_in() {
  for (;;) {
    sockaddr_storage address{};
    socklen_t length = sizeof address;
    Fd socket(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors or memory: what waits to be accepted would wake us again and again.
      if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
        accept_again_ = steady_now() + kDescriptorPause;
      return;
    }
    admit(std::move(socket), address_text(address, length));
  }
}

void MeetingHost::admit(Fd socket, const std::string& from) {
  auto nonce = random_word();
  if (!nonce) return log_.error("{}: nobody can join the job", nonce.error().message);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnackedMs);
  if (strangers() >= kMostStrangers)
    guests_.erase(std::ranges::find_if(guests_, [](const Guest& guest) { return !guest.rank; }));
  Guest guest{LineSocket(std::move(socket), kLongestHello), from, *nonce, steady_now()};
  guest.line.send(fmt::format("{}{}\n", kMeetingGreeting, *nonce));
  guests_.push_back(std::move(guest));
}

size_t MeetingHost::strangers() const {
  return static_cast<size_t>(std::ranges::count_if(guests_, [](const Guest& guest) { return !guest.rank; }));
}

void MeetingHost::hear(Guest& guest) {
  for (auto line = guest.line.next(); line; line = guest.line.next()) {
    if (guest.leaving) continue;
    if (guest.rank) {
      hear_node(guest, *line);
    } else {
      hear_join(guest, *line);
    }
  }
}

void MeetingHost::hear_join(Guest& guest, const std::string& line) {
  const auto words = words_of(line);
  if (words.size() != 5 || words[0] != "join") {
    guest.leaving = true;  // whoever that is, it would not understand
    return;
  }
  if (const std::string why = reason_to_refuse(guest, words); !why.empty()) return refuse(guest, why);
  const JobPlace place{NodeId(*parse_whole<uint32_t>(words[1])), options_.nodes};
  guest.rank = place.self;
  guest.line.allow(kLongestLine);
  guest.line.send(
      fmt::format("joined {}\n", host_proof(options_.secret, {guest.nonce, std::string(words[3])}, place)));
  seats_[place.self.index()] = true;
  tell_soon();
  log_.info("node {} of {} has come to {}, from {}", place.self.value, place.size, where_, guest.from);
  if (missing().empty()) all_have_come();
}

// A stranger learns nothing but that it does not know the secret.
std::string MeetingHost::reason_to_refuse(const Guest& guest,
                                          const std::vector<std::string_view>& words) const {
  const auto rank = parse_whole<uint32_t>(words[1]);
  const auto nodes = parse_whole<uint32_t>(words[2]);
  if (!rank || !nodes) return "its --rank and --nodes are no numbers";
  const JobPlace place{NodeId(*rank), *nodes};
  if (!same_word(node_proof(options_.secret, {guest.nonce, std::string(words[3])}, place), words[4])) {
    return options_.secret.empty()
               ? "it has a secret, and node 0 has none: give --job-secret to all nodes or none"
               : "its secret is not that of node 0 (--job-secret, $CLAIRFS_JOB_SECRET)";
  }
  if (*nodes != options_.nodes)
    return fmt::format("it was given --nodes {}, node 0 --nodes {}", *nodes, options_.nodes);
  if (*rank >= *nodes) return fmt::format("--rank {} is not below --nodes {}", *rank, *nodes);
  const auto there = std::ranges::find_if(guests_, [&](const Guest& g) { return g.rank == NodeId(*rank); });
  if (there != guests_.end()) {
    return fmt::format("node {} of {} is there already, from {}: each node needs a --rank of its own", *rank,
                       *nodes, there->from);
  }
  if (formed_) return fmt::format("the job of {} nodes has formed; it takes no node any more", *nodes);
  return "";
}

void MeetingHost::refuse(Guest& guest, const std::string& why) {
  guest.leaving = true;
  guest.line.send(fmt::format("refused {}\n", why));
  if (++refusals_ <= kRefusalsLogged) {
    log_.warn("{}: a node at {} is refused: {}{}", where_, guest.from, why,
              refusals_ == kRefusalsLogged ? " (later ones are not logged)" : "");
  }
}

void MeetingHost::hear_node(Guest& guest, const std::string& line) {
  if (line == "bye") {
    guest.bye = true;
  } else if (line == "barrier" && formed_ && !guest.in_barrier) {
    guest.in_barrier = true;
    if (++in_barrier_ == options_.nodes) end_round();
  } else if (line.starts_with("put ") && formed_ && !guest.in_barrier) {
    guest.put_bytes += line.size();
    if (guest.put_bytes > kMostPutBytes)
      return fail(
          fmt::format("the MPI of node {} puts more than {} bytes", guest.rank->value, kMostPutBytes));
    puts_ += line + "\n";
  }
}

void MeetingHost::all_have_come() {
  formed_ = true;
  tell_nodes("formed\n");
}

void MeetingHost::end_round() {
  tell_nodes(std::exchange(puts_, {}) + "barrier\n");
  in_barrier_ = 0;
  for (Guest& guest : guests_) {
    guest.in_barrier = false;
    guest.put_bytes = 0;
  }
}

void MeetingHost::lose(const Guest& guest) {
  if (!guest.rank || guest.bye) return;
  seats_[guest.rank->index()] = false;
  log_.warn("node {} of {}, at {}, has left {}", guest.rank->value, options_.nodes, guest.from, where_);
  tell_soon();
  if (formed_) {
    fail(fmt::format("node {} of {}, at {}, ended while the job formed", guest.rank->value, options_.nodes,
                     guest.from));
  }
}

void MeetingHost::drop_the_overdue() {
  const TimePoint patient_until = steady_now() - options_.stranger_patience;
  std::erase_if(guests_, [&](const Guest& guest) { return !guest.rank && guest.came < patient_until; });
}

void MeetingHost::fail(const std::string& why) {
  if (std::exchange(failed_, true)) return;
  tell_nodes(fmt::format("failed {}\n", why));
}

void MeetingHost::tell_nodes(std::string text) {
  const auto shared = std::make_shared<const std::string>(std::move(text));
  for (Guest& guest : guests_) {
    if (guest.rank && !guest.bye) guest.line.send(shared);
  }
}

void MeetingHost::say_goodbye() {
  {
    MutexLock lock(mutex_);
    if (!why_.empty()) fail(why_);
  }
  const TimePoint patient_until = steady_now() + kGoodbyePatience;
  const auto waits = [](const Guest& guest) { return guest.rank && !guest.line.all_sent(); };
  while (std::ranges::any_of(guests_, waits) && steady_now() < patient_until) {
    std::vector<pollfd> events;
    for (const Guest& guest : guests_) {
      if (waits(guest)) events.push_back({guest.line.fd(), POLLOUT, 0});
    }
    ::poll(events.data(), events.size(), kPollMs);
    std::erase_if(guests_, [&](Guest& guest) { return waits(guest) && !guest.line.turn(); });
  }
}

void MeetingHost::tell_soon() {
  next_telling_ = std::min(next_telling_, last_telling_ + kBetweenTellings);
}

std::vector<NodeId> MeetingHost::missing() const {
  std::vector<NodeId> ranks;
  for (uint32_t rank = 0; rank < options_.nodes; ++rank) {
    if (!is_there(NodeId(rank))) ranks.emplace_back(rank);
  }
  return ranks;
}

}  // namespace clairfs
