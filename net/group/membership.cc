#include "net/group/membership.h"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"

namespace clairfs {
namespace {

// Hellos a second that a node sends at most, so that very large jobs stay quiet too: at 1000 nodes a hello
// goes to each every 5 seconds, and silence is judged by that.
constexpr auto kLeastBetweenHellos = std::chrono::milliseconds(5);

// One in so many hellos also goes to dead nodes: two nodes that took each other for dead must find out, but
// what waits for a dead one takes memory.
constexpr uint64_t kBeatsToDead = 10;

// A node whose own ticks lay so far apart stood still. Half of the silence after which a PeerClient blames a
// peer: what came meanwhile is not delivered yet when it looks. Three times what a node that nobody stopped
// was seen to take on an overcommitted machine. Not stretched in large jobs, since that silence is not
// either.
constexpr auto kStoodStill = std::chrono::seconds(1);

uint64_t wall_clock_us() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(
                                   std::chrono::system_clock::now().time_since_epoch())
                                   .count());
}

// Silence counts in heartbeats where those are slower than asked for.
MembershipTimes stretched(MembershipTimes times, uint32_t nodes) {
  const Duration beat = std::max<Duration>(times.heartbeat, nodes * kLeastBetweenHellos);
  times.late_after = std::max(times.late_after, 3 * beat);
  times.dead_after = std::max(times.dead_after, 6 * beat);
  times.heartbeat = beat;
  return times;
}

}  // namespace

const char* to_string(PeerState state) {
  switch (state) {
    case PeerState::joining:
      return "joining";
    case PeerState::alive:
      return "alive";
    case PeerState::late:
      return "late";
    case PeerState::dead:
      return "dead";
    case PeerState::left:
      return "left";
  }
  return "?";
}

Membership::Membership(Deps deps, const MembershipTimes& times)
    : deps_(std::move(deps)),
      self_(deps_.transport.self()),
      times_(stretched(times, deps_.transport.size())),
      peers_([this] {
        std::vector<std::unique_ptr<Peer>> peers;
        for (uint32_t i = 0; i < deps_.transport.size(); ++i) peers.push_back(std::make_unique<Peer>());
        return peers;
      }()),
      incarnation_(wall_clock_us()) {
  peer(self_).state = PeerState::alive;
}

std::string Membership::name(NodeId node) const {
  MutexLock lock(mutex_);
  const std::string& host = peer(node).info.host;
  return host.empty() ? fmt::format("node {}", node.value)
                      : fmt::format("node {} ({})", node.value, escaped(host));
}

TimePoint Membership::last_heard(NodeId node) const {
  return TimePoint(TimePoint::duration(peer(node).last_heard.load(std::memory_order_relaxed)));
}

void Membership::heard(NodeId from, TimePoint now) {
  Peer& entry = peer(from);
  entry.last_heard.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  if (entry.state.load() == PeerState::late) change(from, PeerState::alive, "is heard again");
}

bool Membership::is_outdated(NodeId from, const wire::Hello& hello) const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  const Peer& entry = peer(from);
  return hello.incarnation < entry.info.incarnation && now - entry.said <= times_.dead_after;
}

void Membership::on_hello(NodeId from, const wire::Hello& hello) {
  if (is_outdated(from, hello)) return;
  Peer& entry = peer(from);
  const TimePoint now = deps_.clock.now();
  bool anew = false;
  {
    MutexLock lock(mutex_);
    anew = hello.incarnation != entry.info.incarnation;
    entry.info = hello;
    entry.said = now;
  }
  const PeerState state = entry.state.load();
  if (state == PeerState::joining) change(from, PeerState::alive, "is here");
  if (state == PeerState::dead || (state == PeerState::left && anew))
    change(from, PeerState::alive, "is back");
  update_serves(from);
  if (hello.wants_answer && !left_) (void)deps_.transport.send(from, wire::encode(own_hello(false)));
}

void Membership::on_goodbye(NodeId from, const std::string& reason) {
  {
    MutexLock lock(mutex_);
    peer(from).parting = reason;
  }
  change(from, PeerState::left, reason.empty() ? "left" : fmt::format("left: {}", escaped(reason)));
}

void Membership::suspect(NodeId node, Duration silence) {
  if (state(node) == PeerState::alive)
    change(node, PeerState::late, fmt::format("does not answer: silent for {}", format_duration(silence)));
}

void Membership::tick(TimePoint now) {
  const bool first = last_tick_ == TimePoint{};
  const Duration gap = first ? Duration{} : now - last_tick_;
  last_tick_ = now;
  if (first || gap > std::min<Duration>(kStoodStill, times_.late_after)) wake_up(now, gap);
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    const NodeId node(i);
    if (node == self_) continue;
    const Duration silence = now - last_heard(node);
    const PeerState state = peer(node).state.load();
    if ((state == PeerState::alive || state == PeerState::late) && silence > times_.dead_after) {
      change(node, PeerState::dead,
             fmt::format("is taken for dead: silent for {}", format_duration(silence)));
    } else if (state == PeerState::alive && silence > times_.late_after) {
      change(node, PeerState::late, fmt::format("is late: silent for {}", format_duration(silence)));
    }
  }
  if (now < next_heartbeat_) return;
  next_heartbeat_ = now + times_.heartbeat;
  say_hello(first, beats_++ % kBeatsToDead == 0);
}

// This node has just begun, or stood still: nobody else is to blame for what it did not hear.
void Membership::wake_up(TimePoint now, Duration gap) {
  for (const auto& entry : peers_)
    entry->last_heard.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  if (gap == Duration{}) return;
  incarnation_ = std::max(incarnation_ + 1, wall_clock_us());
  deps_.log.warn("this process was suspended for {}; rejoining the job", format_duration(gap));
  say_hello(true, true);
}

void Membership::set_ready(uint64_t catalog_identity) {
  identity_ = catalog_identity;
  for (uint32_t i = 0; i < peers_.size(); ++i) update_serves(NodeId(i));
  say_hello(false, true);
}

void Membership::say_goodbye(const std::string& reason) {
  left_ = true;
  const auto bytes = wire::encode(wire::Goodbye{reason.substr(0, wire::kMaxText)});
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    if (NodeId(i) != self_ && state(NodeId(i)) != PeerState::left)
      (void)deps_.transport.send(NodeId(i), bytes);
  }
}

wire::Hello Membership::own_hello(bool wants_answer) const {
  wire::Hello hello = deps_.describe();
  hello.wants_answer = wants_answer;
  hello.incarnation = incarnation_;
  hello.nodes = deps_.transport.size();
  hello.catalog_identity = identity_;
  hello.ready = identity_ != 0;
  return hello;
}

// A hello that is lost is followed by the next; a peer that takes none will be found silent.
void Membership::say_hello(bool wants_answer, bool also_dead) {
  if (left_) return;
  const auto bytes = wire::encode(own_hello(wants_answer));
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    const NodeId node(i);
    const PeerState to = state(node);
    if (node == self_ || to == PeerState::left || (to == PeerState::dead && !also_dead)) continue;
    (void)deps_.transport.send(node, bytes);
  }
}

void Membership::change(NodeId node, PeerState to, const std::string& why) {
  const PeerState before = peer(node).state.exchange(to);
  if (before == to) return;
  const auto count = [&](PeerState which, Gauge& gauge) {
    gauge.add((to == which ? 1 : 0) - (before == which ? 1 : 0));
  };
  count(PeerState::alive, deps_.metrics.peers_alive);
  count(PeerState::dead, deps_.metrics.peers_dead);
  update_serves(node);
  deps_.log.log(to == PeerState::late || to == PeerState::dead ? spdlog::level::warn : spdlog::level::info,
                "{} {}", name(node), why);
  deps_.on_change(node, before, to);
}

void Membership::update_serves(NodeId node) {
  Peer& entry = peer(node);
  MutexLock lock(mutex_);
  entry.serves = node != self_ && entry.state.load() == PeerState::alive && entry.info.ready &&
                 identity_ != 0 && entry.info.catalog_identity == identity_;
}

std::vector<PeerReport> Membership::report() const {
  const wire::Hello own = own_hello(false);
  const TimePoint now = deps_.clock.now();
  std::vector<PeerReport> all;
  for (uint32_t i = 0; i < peers_.size(); ++i) {
    const NodeId node(i);
    const Peer& entry = peer(node);
    PeerReport report;
    report.node = node;
    report.state = state(node);
    report.serves = serves(node);
    report.silent = node == self_ ? Duration{} : now - last_heard(node);
    MutexLock lock(mutex_);
    report.info = node == self_ ? own : entry.info;
    report.parting = entry.parting;
    all.push_back(std::move(report));
  }
  return all;
}

}  // namespace clairfs
