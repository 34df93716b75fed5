#include "net/peers/client.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cache/base/checksum.h"
#include "cache/base/units.h"

namespace clairfs {
namespace {

// Of a node that nobody has asked yet: a network of a cluster, and a net thread that must be woken first.
constexpr LatencyModel::Prior kPeerPrior{1e-3, 1e9};

// Deadlines are looked at so often: small against the shortest of them.
constexpr auto kCheckEvery = std::chrono::milliseconds(20);

// A peer whose credit was used up gets new requests when a quarter of it has come back, so that they travel
// together.
constexpr uint64_t kRefillDivisor = 4;

// A peer whose PFS is left alone is asked so often how it is: its return is noticed so much later at most.
constexpr auto kAskAgain = std::chrono::seconds(1);

// A PFS that lives brings something more often than this while it is asked.
constexpr auto kPfsPause = std::chrono::seconds(1);

// As it is told to another node, whose clock is another.
Priority from_now(Priority priority, uint64_t now) {
  if (priority.kind == Priority::Kind::prefetch) priority.deadline -= std::min(priority.deadline, now);
  return priority;
}

}  // namespace

// A fetch from start() to its end. After each event settle() takes it on as far as that allows:
//
//   queued --take_batch()--> being sent --posted--> sent --reply is ok, and received--> ended
//
// It fails by a verdict, by a reply that refuses, or by a receive that fails. A queued one ends at once then.
// One that is being sent becomes sent first, for its receive may not be posted yet. The receive of one that
// is sent is cancelled, and the fetch ends when the transport has answered it: only then is the memory free.
struct PeerClient::Pending {
  uint32_t id = 0;
  PeerFetch fetch;
  TransferNumber transfer = 0;
  bool came_as_fill = false;
  // Guarded by mutex_ from here on, while others know it.
  Priority priority;      // of its demand, as it is counted and sorted by here
  uint64_t in_front = 0;  // bytes asked of the peer before it and still on their way, but fills, and its own
  TimePoint asked{};      // or when somebody came to need it, after it had been asked for as a fill
  TimePoint sent{};
  bool queued = true;
  bool posted = false;     // its receive
  bool cancelled = false;  // its receive
  std::optional<wire::ChunkReply> reply;
  std::optional<Status> received;      // what became of its memory
  std::optional<PeerOutcome> verdict;  // known before the memory is free
};

struct PeerClient::Peer {
  std::map<std::pair<Priority, uint32_t>, std::shared_ptr<Pending>> queue;
  std::unordered_map<uint32_t, std::shared_ptr<Pending>> all;  // queued and sent
  uint32_t next_id = 1;
  uint64_t needed_bytes = 0;  // of all but fills
  uint64_t sent_bytes = 0;
  uint32_t sent_count = 0;
  uint64_t sent_fill_bytes = 0;  // part of sent_bytes
  uint32_t sent_fill_count = 0;
  LatencyModel path{kPeerPrior};
  SlowPeerDetector watch;
  TimePoint probed{};
  TimePoint left_alone_until{};

  explicit Peer(Duration slow_fetch) : watch(slow_fetch) {}
};

PeerClient::PeerClient(const Deps& deps, const PeerClientOptions& options)
    : deps_(deps), options_(options), pfs_heard_(deps.clock.now()) {
  for (uint32_t i = 0; i < deps.transport.size(); ++i)
    peers_.push_back(std::make_unique<Peer>(options.slow_fetch));
  batcher_ = NamedThread("peer-batch", [this] { send_batches(); });
}

PeerClient::~PeerClient() {
  stop();
}

void PeerClient::start(PeerFetch fetch) {
  const NodeId node = fetch.peer;
  const auto pending = std::make_shared<Pending>();
  pending->asked = deps_.clock.now();
  pending->fetch = std::move(fetch);
  bool stopped = false;
  bool at_once = false;
  {
    MutexLock lock(mutex_);
    stopped = stopped_;
    // Under the lock: whoever raises it later finds the fetch.
    pending->priority = pending->fetch.demand->now();
    pending->came_as_fill = pending->priority.is_background();
    at_once = pending->priority.is_demand();
    if (!stopped) {
      Peer& peer = *peers_[node.index()];
      pending->id = peer.next_id++;
      if (!pending->priority.is_background()) pending->in_front = peer.needed_bytes += pending->fetch.length;
      peer.queue[{pending->priority, pending->id}] = pending;
      peer.all[pending->id] = pending;
      by_demand_[pending->fetch.demand.get()] = pending;
      if (!at_once && held_back_.insert(node).second) wake_.notify_all();
    }
  }
  if (stopped) return pending->fetch.done(PeerOutcome::cancelled);
  deps_.metrics.peers_requested.add();
  deps_.membership.traffic(node).requested.add();
  deps_.metrics.peers_outstanding_bytes.add(pending->fetch.length);
  deps_.membership.traffic(node).outstanding_bytes.add(pending->fetch.length);
  if (at_once) dispatch(node, false);
}

std::shared_ptr<PeerClient::Pending> PeerClient::find(NodeId peer, uint32_t id) {
  const auto& all = peers_[peer.index()]->all;
  const auto found = all.find(id);
  return found == all.end() ? nullptr : found->second;
}

void PeerClient::demand_changed(const Demand& demand) {
  const Priority priority = demand.now();
  NodeId node;
  uint32_t id = 0;
  bool queued = false;
  bool posted = false;
  {
    MutexLock lock(mutex_);
    const auto found = by_demand_.find(&demand);
    if (found == by_demand_.end() || priority >= found->second->priority) return;
    Pending& pending = *found->second;
    node = pending.fetch.peer;
    id = pending.id;
    const bool same_kind = priority.kind == pending.priority.kind;
    Peer& peer = *peers_[node.index()];
    queued = pending.queued;
    if (queued) {
      auto entry = peer.queue.extract({pending.priority, id});
      entry.key().first = priority;
      peer.queue.insert(std::move(entry));
    }
    if (pending.priority.is_background() && !same_kind) {
      pending.asked = deps_.clock.now();
      pending.in_front = peer.needed_bytes += pending.fetch.length;
      if (!queued) {
        peer.sent_fill_bytes -= pending.fetch.length;
        --peer.sent_fill_count;
      }
    }
    pending.priority = priority;
    posted = pending.posted;
    if (same_kind) return;
    // It may have credit now, or leave some to the next fill.
    if (held_back_.insert(node).second) wake_.notify_all();
  }
  if (posted) {  // else whoever is about to send it does
    send_reprioritize(node, id, priority);
  } else if (queued && priority.is_demand()) {
    dispatch(node, false);
  }
}

Duration PeerClient::predict(NodeId peer, uint64_t length) const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  const Peer& p = *peers_[peer.index()];
  return p.path.predict(p.needed_bytes + length, now);
}

bool PeerClient::slow(NodeId peer) const {
  MutexLock lock(mutex_);
  return peers_[peer.index()]->watch.slow();
}

bool PeerClient::left_alone(NodeId peer) const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  return now < peers_[peer.index()]->left_alone_until;
}

bool PeerClient::take_trial(NodeId peer) {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  return peers_[peer.index()]->watch.take_trial(now);
}

Duration PeerClient::latency(NodeId peer) const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  return peers_[peer.index()]->path.latency(now);
}

double PeerClient::bandwidth(NodeId peer) const {
  const TimePoint now = deps_.clock.now();
  MutexLock lock(mutex_);
  return peers_[peer.index()]->path.bandwidth(now);
}

void PeerClient::stop() {
  std::vector<std::vector<uint32_t>> ids(deps_.transport.size());
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    wake_.notify_all();
    while (pumping_ > 0) wake_.wait(lock);  // they only queue: see Transport
    for (size_t i = 0; i < peers_.size(); ++i) {
      for (const auto& [id, pending] : peers_[i]->all) ids[i].push_back(id);
    }
  }
  for (uint32_t i = 0; i < ids.size(); ++i) give_up(NodeId(i), ids[i], PeerOutcome::cancelled);
  if (batcher_.joinable()) batcher_.join();
}

// Sends what the peer has credit for. `refill`: credit has come back, but better wait for more of it.
void PeerClient::dispatch(NodeId peer, bool refill) {
  for (;;) {
    std::vector<std::shared_ptr<Pending>> batch;
    {
      MutexLock lock(mutex_);
      if (stopped_) return;
      batch = take_batch(*peers_[peer.index()], refill);
      if (batch.empty()) return;
      ++pumping_;
    }
    send_batch(peer, batch);
    MutexLock lock(mutex_);
    if (--pumping_ == 0 && stopped_) wake_.notify_all();
  }
}

void PeerClient::send_reprioritize(NodeId peer, uint32_t id, const Priority& priority) {
  const uint64_t now = deadline_at(deps_.clock.now());
  (void)deps_.transport.send(peer, wire::encode(wire::Reprioritize{from_now(priority, now), {id}}));
}

std::vector<std::shared_ptr<PeerClient::Pending>> PeerClient::take_batch(Peer& peer, bool refill) {
  std::vector<std::shared_ptr<Pending>> batch;
  const TimePoint now = deps_.clock.now();
  if (refill && !peer.queue.empty()) {
    const Pending& next = *peer.queue.begin()->second;
    const uint64_t credit = next.priority.is_background() ? options_.credit / kFillDivisor : options_.credit;
    const uint64_t sent = next.priority.is_background() ? peer.sent_fill_bytes : peer.sent_bytes;
    if (!next.priority.is_demand() && sent > credit - credit / kRefillDivisor) return batch;
  }
  while (!peer.queue.empty() && batch.size() < wire::kMaxList) {
    const auto& pending = peer.queue.begin()->second;
    const uint32_t length = pending->fetch.length;
    // What is fetched ahead of need must not keep a waiting reader from asking, nor fills what is needed.
    const uint64_t most = pending->priority.is_demand() ? 2 : 1;
    if (peer.sent_count > 0 && peer.sent_bytes + length > most * options_.credit) break;
    if (peer.sent_count >= most * options_.most_requests) break;
    if (pending->priority.is_background()) {
      if (peer.sent_fill_count > 0 && peer.sent_fill_bytes + length > options_.credit / kFillDivisor) break;
      if (peer.sent_fill_count >= std::max<uint64_t>(options_.most_requests / kFillDivisor, 1)) break;
      peer.sent_fill_bytes += length;
      ++peer.sent_fill_count;
    }
    peer.sent_bytes += length;
    ++peer.sent_count;
    pending->queued = false;
    pending->sent = now;
    batch.push_back(pending);
    peer.queue.erase(peer.queue.begin());
  }
  return batch;
}

void PeerClient::send_batch(NodeId peer, const std::vector<std::shared_ptr<Pending>>& batch) {
  wire::ChunkRequests requests;
  const uint64_t now = deadline_at(deps_.clock.now());
  std::vector<Priority> told;
  for (const auto& pending : batch) {
    const PeerFetch& f = pending->fetch;
    told.push_back(f.demand->now());
    pending->transfer = deps_.numbers.next(peer);
    requests.list.push_back({pending->id, f.chunk, f.offset, f.length, pending->transfer,
                             from_now(told.back(), now), f.home, f.only_here});
    deps_.transport.receive(peer, pending->transfer, f.memory, [this, peer, pending](Status status) {
      if (status) deps_.membership.heard(peer, deps_.clock.now());
      {
        MutexLock lock(mutex_);
        pending->received = std::move(status);
      }
      settle(peer, pending->id);
    });
  }
  const Status sent = deps_.transport.send(peer, wire::encode(requests));
  std::vector<std::pair<uint32_t, Priority>> raised;
  {
    MutexLock lock(mutex_);
    for (size_t i = 0; i < batch.size(); ++i) {
      Pending& pending = *batch[i];
      pending.posted = true;
      if (!sent && !pending.verdict) pending.verdict = PeerOutcome::late;
      if (pending.priority.kind < told[i].kind) raised.emplace_back(pending.id, pending.priority);
    }
  }
  for (const auto& [id, priority] : raised) send_reprioritize(peer, id, priority);
  // A thread that gave one up meanwhile could not cancel its receive yet.
  for (const auto& pending : batch) settle(peer, pending->id);
}

void PeerClient::give_up(NodeId peer, const std::vector<uint32_t>& ids, PeerOutcome why) {
  {
    MutexLock lock(mutex_);
    for (const uint32_t id : ids) {
      const auto pending = find(peer, id);
      if (pending && !pending->verdict) pending->verdict = why;
    }
  }
  for (const uint32_t id : ids) settle(peer, id);
}

void PeerClient::give_up_all(NodeId peer, PeerOutcome why) {
  std::vector<uint32_t> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, pending] : peers_[peer.index()]->all) ids.push_back(id);
  }
  give_up(peer, ids, why);
}

// Takes a fetch as far as what is known of it allows.
void PeerClient::settle(NodeId peer, uint32_t id) {
  std::shared_ptr<Pending> pending;
  bool cancel = false;
  bool finished = false;
  {
    MutexLock lock(mutex_);
    pending = find(peer, id);
    if (!pending) return;
    const bool refused = pending->reply && pending->reply->status != wire::ChunkReply::Status::ok;
    const bool failed = refused || pending->verdict || (pending->received && !*pending->received);
    if (failed && !pending->received && pending->posted && !pending->cancelled)
      cancel = pending->cancelled = true;
    finished = failed ? pending->received || pending->queued : pending->received && pending->reply;
    if (finished) {
      Peer& p = *peers_[peer.index()];
      const uint32_t length = pending->fetch.length;
      p.all.erase(id);
      by_demand_.erase(pending->fetch.demand.get());
      if (!pending->priority.is_background()) p.needed_bytes -= length;
      if (pending->queued) {
        p.queue.erase({pending->priority, id});
      } else {
        p.sent_bytes -= length;
        --p.sent_count;
        p.sent_fill_bytes -= pending->priority.is_background() ? length : 0;
        p.sent_fill_count -= pending->priority.is_background() ? 1 : 0;
      }
    }
  }
  if (cancel) deps_.transport.cancel(peer, pending->transfer);
  if (finished) finish(*pending);
}

void PeerClient::finish(const Pending& pending) {
  const NodeId peer = pending.fetch.peer;
  const PeerOutcome outcome = check_outcome(pending);
  count(pending, outcome);
  dispatch(peer, true);
  pending.fetch.done(outcome);
}

// Of a finished fetch, which nobody else knows any more.
PeerOutcome PeerClient::check_outcome(const Pending& pending) const {
  const int code = pending.received && !*pending.received ? pending.received->error().code : 0;
  if (code == EBUSY) return PeerOutcome::memory_lost;
  if (pending.reply && pending.reply->status == wire::ChunkReply::Status::not_here)
    return PeerOutcome::not_here;
  if (pending.reply && pending.reply->status == wire::ChunkReply::Status::failed) return PeerOutcome::failed;
  if (pending.verdict) return *pending.verdict;
  if (code == ECANCELED) return PeerOutcome::failed;  // by the transport: nobody here asked for it
  if (code != 0 || xxh3_64(pending.fetch.memory) != pending.reply->checksum) return PeerOutcome::corrupt;
  return PeerOutcome::ok;
}

void PeerClient::count(const Pending& pending, PeerOutcome outcome) {
  Metrics& m = deps_.metrics;
  PeerTraffic& t = deps_.membership.traffic(pending.fetch.peer);
  const TimePoint now = deps_.clock.now();
  const auto add = [](Counter& all, Counter& of_peer, uint64_t n = 1) {
    all.add(n);
    of_peer.add(n);
  };
  m.peers_outstanding_bytes.add(-static_cast<int64_t>(pending.fetch.length));
  t.outstanding_bytes.add(-static_cast<int64_t>(pending.fetch.length));
  // A fill waits here for what is needed, which is not the peer's doing.
  const bool was_sent = pending.sent != TimePoint{};
  Duration took = now - (pending.came_as_fill && was_sent ? pending.sent : pending.asked);
  switch (outcome) {
    case PeerOutcome::ok:
      add(m.peers_received, t.received);
      add(m.peers_bytes_in, t.bytes_in, pending.fetch.length);
      m.peers_latency.record(took);
      // The time that the home took to read it from the PFS says nothing about the path.
      if (pending.reply->origin == Origin::pfs) took -= std::chrono::microseconds(pending.reply->service_us);
      break;
    case PeerOutcome::not_here:
      return add(m.peers_not_here, t.not_here);
    case PeerOutcome::failed:
      return add(m.peers_failed, t.failed);
    case PeerOutcome::corrupt:
      return add(m.peers_corrupt, t.corrupt);
    case PeerOutcome::late:
    case PeerOutcome::gone:
    case PeerOutcome::memory_lost:
      add(m.peers_late, t.late);
      took = std::max(took, options_.least_silence);  // however short the wait of those that came last
      break;
    case PeerOutcome::cancelled:
      return;
  }
  MutexLock lock(mutex_);
  // Nor does it know what is in front of it.
  if (!pending.came_as_fill) peers_[pending.fetch.peer.index()]->path.completed(pending.in_front, took, now);
  peers_[pending.fetch.peer.index()]->watch.completed(took, now);
}

void PeerClient::on_replies(NodeId from, const wire::ChunkReplies& replies) {
  {
    MutexLock lock(mutex_);
    for (const wire::ChunkReply& reply : replies.list) {
      const auto pending = find(from, reply.id);
      if (pending && !pending->queued && !pending->reply) pending->reply = reply;
    }
  }
  for (const wire::ChunkReply& reply : replies.list) settle(from, reply.id);
}

// Of those that have their reply the transfer is still to come.
void PeerClient::on_probe_answer(NodeId from, const wire::ProbeAnswer& answer) {
  const TimePoint now = deps_.clock.now();
  const bool hangs = std::chrono::milliseconds(answer.stalled_ms) >= options_.most_stall;
  const bool leave = hangs && !pfs_pauses(now);
  std::vector<uint32_t> lost;
  bool is_new = false;
  {
    MutexLock lock(mutex_);
    Peer& peer = *peers_[from.index()];
    is_new = leave != (now < peer.left_alone_until);
    if (is_new) peer.left_alone_until = leave ? now + options_.leave_alone : TimePoint{};
    for (const auto& [id, pending] : peer.all) {
      // What it has comes, unless that needs its PFS after all: NVMe may have lost it.
      const bool comes = pending->fetch.only_here && now - pending->asked < options_.most_stall;
      if (leave && !pending->reply && !comes) lost.push_back(id);
    }
    for (const uint32_t id : answer.unknown) {
      const auto pending = find(from, id);
      if (pending && !pending->queued && !pending->reply) lost.push_back(id);
    }
  }
  if (is_new && leave)
    deps_.log.warn("the PFS of {} has brought nothing for {}: it is asked only for what it has for {}",
                   deps_.membership.name(from), format_duration(options_.most_stall),
                   format_duration(options_.leave_alone));
  if (is_new && !leave)
    deps_.log.info("the PFS of {} brings {}", deps_.membership.name(from),
                   hangs ? "nothing, as that of this node: it is asked again" : "something again");
  give_up(from, lost, PeerOutcome::late);
}

// Looks whether this node's PFS, too, has brought nothing for a while though it was asked.
bool PeerClient::pfs_pauses(TimePoint now) {
  const uint64_t ended = deps_.metrics.pfs_latency.count();
  const bool idle = deps_.metrics.pfs_in_flight.value() == 0;
  if (std::exchange(pfs_ended_, ended) != ended || idle) pfs_heard_ = now;
  return now - pfs_heard_ >= kPfsPause;
}

void PeerClient::on_peer_change(NodeId peer, PeerState state) {
  if (state == PeerState::late) give_up_all(peer, PeerOutcome::late);
  if (state == PeerState::dead || state == PeerState::left) give_up_all(peer, PeerOutcome::gone);
}

void PeerClient::tick(TimePoint now) {
  if (now < next_check_) return;
  next_check_ = now + kCheckEvery;
  (void)pfs_pauses(now);
  std::vector<NodeId> busy;
  {
    MutexLock lock(mutex_);
    for (uint32_t i = 0; i < peers_.size(); ++i) {
      if (!peers_[i]->all.empty() || now < peers_[i]->left_alone_until) busy.emplace_back(i);
    }
  }
  for (const NodeId peer : busy) check(peer, now);
}

void PeerClient::check(NodeId node, TimePoint now) {
  const PeerState state = deps_.membership.state(node);
  const TimePoint heard = deps_.membership.last_heard(node);
  std::vector<uint32_t> overdue;
  wire::Probe probe;
  Duration silence{};
  Duration patience{};
  bool asks = false;
  {
    MutexLock lock(mutex_);
    Peer& peer = *peers_[node.index()];
    patience =
        std::clamp(std::chrono::duration_cast<Duration>(options_.silence_factor * peer.path.latency(now)),
                   options_.least_silence, options_.most_silence);
    for (const auto& [id, pending] : peer.all) {
      // A fill may wait here for as long as there is something that is needed.
      const bool waits_in_turn = pending->priority.is_background() && pending->queued;
      const TimePoint since = pending->priority.is_background() ? pending->sent : pending->asked;
      if (!waits_in_turn && now - since > options_.most_wait) overdue.push_back(id);
      if (pending->queued) continue;
      silence = std::max(silence, now - std::max(heard, pending->sent));
      if (pending->posted && now - pending->sent > options_.probe_after && probe.ids.size() < wire::kMaxList)
        probe.ids.push_back(id);
    }
    // Of one that is left alone nothing may be outstanding.
    const Duration pause = probe.ids.empty() ? Duration(kAskAgain) : options_.probe_after;
    asks = (!probe.ids.empty() || now < peer.left_alone_until) && now - peer.probed >= pause;
    if (asks) peer.probed = now;
  }
  if (silence > patience) deps_.membership.suspect(node, silence);
  if (silence > patience || state == PeerState::late) return give_up_all(node, PeerOutcome::late);
  if (state != PeerState::alive) return give_up_all(node, PeerOutcome::gone);
  give_up(node, overdue, PeerOutcome::late);
  if (asks) (void)deps_.transport.send(node, wire::encode(probe));
}

// Body of the batch thread.
void PeerClient::send_batches() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    if (held_back_.empty()) {
      wake_.wait(lock);
      continue;
    }
    lock.unlock();
    std::this_thread::sleep_for(options_.batch_delay);
    lock.lock();
    const std::set<NodeId> peers = std::exchange(held_back_, {});
    lock.unlock();
    for (const NodeId peer : peers) dispatch(peer, false);
    lock.lock();
  }
}

}  // namespace clairfs
