#include "net/peers/server.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "cache/base/checksum.h"

namespace clairfs {
namespace {

// Bytes a second of a PFS that is slow and not hung: a chunk may have a gigabyte.
constexpr uint64_t kSlowestPfs = 20'000'000;

// What another node told.
Priority on_this_clock(Priority priority, TimePoint now) {
  if (priority.kind == Priority::Kind::prefetch)
    priority.deadline = deadline_at(now) + std::min(priority.deadline, UINT64_MAX - deadline_at(now));
  return priority;
}

ChunkPiece piece_of(const wire::ChunkRequest& request) {
  return {request.offset, uint64_t{request.offset} + request.length};
}

}  // namespace

// One request.
struct PeerServer::Work {
  NodeId peer;
  wire::ChunkRequest request;
  uint32_t chunk_length = 0;
  TimePoint arrived{};
  uint64_t arrival = 0;
  std::atomic<int> ends{0};  // counts start() returning and its load completing; whichever is second
                             // dispatches the next request
  // Guarded by mutex_, as is the request's priority.
  enum class Stage : uint8_t { ready, cold, loading } stage = Stage::ready;
  TimePoint needed{};  // when it came, or became a waiting reader's
  FetchPtr fetch;      // once it was started, unless memory had the chunk
  bool dropped = false;
};

// A chunk that is being sent.
struct PeerServer::Pin {
  ChunkRef data;
  uint32_t bytes = 0;
};

struct PeerServer::Peer {
  Queue ready;                                  // here when it was asked for, in memory or on NVMe
  std::unordered_map<uint32_t, WorkPtr> known;  // not answered yet
  std::unordered_map<uint64_t, Pin> pins;
  // Bytes that were asked for.
  uint64_t sending = 0;                   // they are here, and are being sent, or read from NVMe for that
  uint64_t loading = 0;                   // they are being read from the PFS
  std::vector<wire::ChunkReply> replies;  // to be sent together
};

PeerServer::PeerServer(Deps deps, const PeerServerOptions& options)
    : deps_(std::move(deps)), options_(options) {
  for (uint32_t i = 0; i < deps_.transport.size(); ++i) peers_.push_back(std::make_unique<Peer>());
}

PeerServer::~PeerServer() {
  stop();
}

void PeerServer::stop() {
  {
    MutexLock lock(mutex_);
    stopped_ = true;
  }
  for (uint32_t i = 0; i < deps_.transport.size(); ++i) drop(NodeId(i));
}

// Of the chunk that is asked for; 0 if there is no such piece of a chunk.
uint32_t PeerServer::length_of(const wire::ChunkRequest& request) const {
  if (request.chunk.value >= deps_.catalog.chunk_count()) return 0;
  const uint32_t length = deps_.catalog.range(request.chunk).length;
  return request.offset < length && request.length <= length - request.offset ? length : 0;
}

// From the PFS.
bool PeerServer::may_load(const wire::ChunkRequest& request) const {
  return !request.only_here && (request.home || deps_.is_home(request.chunk));
}

void PeerServer::on_requests(NodeId from, const wire::ChunkRequests& requests) {
  const TimePoint now = deps_.clock.now();
  for (wire::ChunkRequest request : requests.list) {
    request.priority = on_this_clock(request.priority, now);
    const auto work = std::make_shared<Work>();
    work->peer = from;
    work->request = request;
    work->arrived = work->needed = now;
    work->chunk_length = length_of(request);
    if (work->chunk_length == 0) {
      deps_.metrics.peers_refused.add();
      reply(*work, {request.id, wire::ChunkReply::Status::not_here, Origin::ram, 0, 0});
      continue;
    }
    const ChunkRange range = deps_.catalog.range(request.chunk);
    const bool here = deps_.cache.here(request.chunk) ||
                      deps_.cache.in_memory(range.file, range.offset + request.offset, request.length);
    const bool kept = here || deps_.cache.tier_of(request.chunk) != Tier::none;
    if (request.only_here ? !here : !kept && !may_load(request)) {
      deps_.metrics.peers_refused.add();
      reply(*work, {request.id, wire::ChunkReply::Status::not_here, Origin::ram, 0, 0});
      continue;
    }
    bool full = false;
    {
      MutexLock lock(mutex_);
      Peer& peer = *peers_[from.index()];
      full = stopped_ || peer.known.size() >= options_.most_waiting;
      if (!full && peer.known.try_emplace(request.id, work).second) {
        work->arrival = arrivals_++;
        work->stage = here ? Work::Stage::ready : Work::Stage::cold;
        (here ? peer.ready : cold_)[{request.priority, work->arrival}] = work;
      }
    }
    if (full) reply(*work, {request.id, wire::ChunkReply::Status::failed, Origin::ram, 0, 0});
  }
  dispatch(from);
}

void PeerServer::on_reprioritize(NodeId from, const wire::Reprioritize& reprioritize) {
  const TimePoint now = deps_.clock.now();
  const Priority priority = on_this_clock(reprioritize.priority, now);
  std::vector<std::pair<FetchPtr, ChunkPiece>> raised;
  {
    MutexLock lock(mutex_);
    Peer& peer = *peers_[from.index()];
    for (const uint32_t id : reprioritize.ids) {
      const auto found = peer.known.find(id);
      if (found == peer.known.end()) continue;
      Work& work = *found->second;
      if (priority >= work.request.priority) continue;
      if (priority.is_demand() && !work.request.priority.is_demand()) work.needed = now;
      if (work.stage == Work::Stage::loading) {
        if (work.request.priority.is_background() && !priority.is_background())
          loading_fills_ -= work.chunk_length;
      } else {
        Queue& queue = work.stage == Work::Stage::ready ? peer.ready : cold_;
        if (auto entry = queue.extract({work.request.priority, work.arrival})) {
          entry.key().first = priority;
          queue.insert(std::move(entry));
        }
      }
      work.request.priority = priority;
      if (work.fetch) raised.emplace_back(work.fetch, piece_of(work.request));
    }
  }
  for (const auto& [fetch, piece] : raised) deps_.cache.raise(fetch, priority, piece);
  dispatch(from);
}

// How long a reader of the peer's has waited for longer than it must. Prefetches and fills may rightly wait
// for what the readers of this node need: they say nothing of the PFS.
Duration PeerServer::stalled(const Peer& peer, TimePoint now) const {
  TimePoint since = now;
  for (const auto& [id, work] : peer.known) {
    if (work->stage != Work::Stage::ready && work->request.priority.is_demand())
      since = std::min(since, work->needed);
  }
  const Duration loading = std::chrono::milliseconds(1000 * loading_ / kSlowestPfs);
  return std::max(Duration::zero(), now - std::max(since, last_load_) - loading);
}

void PeerServer::on_probe(NodeId from, const wire::Probe& probe) {
  using std::chrono::milliseconds;
  const TimePoint now = deps_.clock.now();
  const uint64_t ended = deps_.metrics.pfs_latency.count();  // for this node's own readers, too
  wire::ProbeAnswer answer;
  {
    MutexLock lock(mutex_);
    if (std::exchange(pfs_ended_, ended) != ended) last_load_ = now;
    const Peer& peer = *peers_[from.index()];
    for (const uint32_t id : probe.ids) {
      if (!peer.known.contains(id)) answer.unknown.push_back(id);
    }
    const auto waited = std::chrono::duration_cast<milliseconds>(stalled(peer, now)).count();
    answer.stalled_ms =
        static_cast<uint32_t>(std::min<int64_t>(waited, std::numeric_limits<uint32_t>::max()));
  }
  (void)deps_.transport.send(from, wire::encode(answer));
}

void PeerServer::on_peer_change(NodeId peer, PeerState state) {
  if (state == PeerState::dead || state == PeerState::left) drop(peer);
}

// Starts what may be started: what is here for this peer, what must be read from the PFS for any. A load that
// is refused gives its room back to the peer that it was for, which may have been waiting for it.
void PeerServer::dispatch(NodeId peer) {
  std::deque<NodeId> peers{peer};
  for (; !peers.empty(); peers.pop_front()) {
    for (;;) {
      WorkPtr work;
      {
        MutexLock lock(mutex_);
        work = next(*peers_[peers.front().index()]);
      }
      if (!work) break;
      start(work);
      if (std::find(peers.begin(), peers.end(), work->peer) == peers.end()) peers.push_back(work->peer);
    }
    flush(peers.front());
  }
}

PeerServer::WorkPtr PeerServer::next(Peer& peer) {
  const auto has_room = [](uint64_t taken, uint32_t length, uint64_t most) {
    return taken == 0 || taken + length <= most;
  };
  const auto take = [](Queue& queue, Queue::iterator at) {
    WorkPtr work = at->second;
    queue.erase(at);
    return work;
  };
  // What the PFS keeps this node waiting for takes no room of what is here.
  if (!peer.ready.empty() &&
      has_room(peer.sending, peer.ready.begin()->second->request.length, options_.sending)) {
    WorkPtr work = take(peer.ready, peer.ready.begin());
    peer.sending += work->request.length;
    return work;
  }
  // The most urgent one whose asker takes what it is sent.
  for (auto at = cold_.begin(); at != cold_.end(); ++at) {
    const Work& first = *at->second;
    Peer& asker = *peers_[first.peer.index()];
    const bool fill = first.request.priority.is_background();
    const uint64_t fills = loading_fills_ + first.chunk_length;
    // Fills may wait in the source for as long as others want it: they take no room of what is needed.
    const uint64_t before = fill ? loading_ : loading_ - loading_fills_;
    if (before > 0 && before + first.chunk_length > options_.loading) return nullptr;
    if (fill && loading_fills_ > 0 && fills > options_.loading / kFillDivisor) return nullptr;
    if (!has_room(asker.sending + asker.loading, first.request.length, 2 * options_.sending)) continue;
    asker.loading += first.request.length;
    loading_ += first.chunk_length;
    if (fill) loading_fills_ = fills;
    WorkPtr work = take(cold_, at);
    work->stage = Work::Stage::loading;
    return work;
  }
  return nullptr;
}

void PeerServer::start(const WorkPtr& work) {
  const wire::ChunkRequest& request = work->request;
  const FetchScope scope = may_load(request) ? FetchScope::local_or_pfs : FetchScope::local_only;
  Priority priority;
  {
    MutexLock lock(mutex_);
    priority = request.priority;
  }
  const std::optional<FetchPtr> fetch = deps_.cache.acquire_within(
      scope, request.chunk, priority,
      [this, work](const Result<AcquiredChunk>& chunk) {
        loaded(work, chunk);
        if (work->ends.fetch_add(1) == 1) dispatch(work->peer);
      },
      piece_of(request));
  work->ends.fetch_add(1);
  if (!fetch) return loaded(work, Error{ENOENT, "not here"});
  if (!*fetch) return;
  {
    MutexLock lock(mutex_);
    work->fetch = *fetch;  // on_reprioritize() raises it from here on; until now it only changed the request
    priority = request.priority;
  }
  deps_.cache.raise(*fetch, priority, piece_of(request));
}

void PeerServer::loaded(const WorkPtr& work, const Result<AcquiredChunk>& chunk) {
  using Answer = wire::ChunkReply::Status;
  const wire::ChunkRequest& request = work->request;
  const TimePoint now = deps_.clock.now();
  uint64_t pin = 0;
  {
    MutexLock lock(mutex_);
    const bool was_loading = work->stage == Work::Stage::loading;
    if (was_loading) {
      last_load_ = now;
      loading_ -= work->chunk_length;
      if (request.priority.is_background()) loading_fills_ -= work->chunk_length;
    }
    if (work->dropped) return;
    Peer& peer = *peers_[work->peer.index()];
    if (was_loading) {
      peer.loading -= request.length;
      peer.sending += request.length;
    }
    if (chunk) {
      pin = ++last_pin_;
      peer.pins[pin] = {chunk->data, request.length};
    } else {
      peer.sending -= request.length;
    }
  }
  if (!chunk) {
    const bool not_here = chunk.error().code == ENOENT;
    if (not_here) deps_.metrics.peers_refused.add();
    return reply(*work, {request.id, not_here ? Answer::not_here : Answer::failed, Origin::ram, 0, 0});
  }
  auto memory = chunk->data->block.slices(request.offset, request.length);
  const uint64_t checksum = xxh3_64(memory);
  deps_.metrics.peers_served.add();
  deps_.metrics.peers_bytes_out.add(request.length);
  deps_.membership.traffic(work->peer).served.add();
  deps_.membership.traffic(work->peer).bytes_out.add(request.length);
  deps_.transport.send_bulk(work->peer, request.transfer, std::move(memory),
                            [this, peer = work->peer, pin](const clairfs::Status&) { sent(peer, pin); });
  reply(*work, {request.id, Answer::ok, chunk->origin, 0, checksum});
}

// A transfer has left.
void PeerServer::sent(NodeId peer, uint64_t pin) {
  ChunkRef data;  // dropped outside the lock
  {
    MutexLock lock(mutex_);
    Peer& p = *peers_[peer.index()];
    const auto found = p.pins.find(pin);
    if (found == p.pins.end()) return;
    data = std::move(found->second.data);
    p.sending -= found->second.bytes;
    p.pins.erase(found);
  }
  data = ChunkRef();
  dispatch(peer);
}

// Replies leave with the next flush().
void PeerServer::reply(const Work& work, wire::ChunkReply reply) {
  const auto service =
      std::chrono::duration_cast<std::chrono::microseconds>(deps_.clock.now() - work.arrived).count();
  reply.service_us =
      static_cast<uint32_t>(std::clamp<int64_t>(service, 0, std::numeric_limits<uint32_t>::max()));
  MutexLock lock(mutex_);
  peers_[work.peer.index()]->replies.push_back(reply);
}

void PeerServer::flush(NodeId node) {
  for (;;) {
    wire::ChunkReplies replies;
    {
      MutexLock lock(mutex_);
      auto& waiting = peers_[node.index()]->replies;
      const size_t count = std::min(waiting.size(), wire::kMaxList);
      if (count == 0) return;
      const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(count);
      replies.list.assign(waiting.begin(), end);
      waiting.erase(waiting.begin(), end);
    }
    // A reply that cannot be sent is missed by the asker's next probe.
    (void)deps_.transport.send(node, wire::encode(replies));
    // Only now: an answer to a probe must not overtake the reply.
    MutexLock lock(mutex_);
    for (const wire::ChunkReply& reply : replies.list) peers_[node.index()]->known.erase(reply.id);
  }
}

void PeerServer::drop(NodeId node) {
  std::unordered_map<uint64_t, Pin> pins;  // dropped outside the lock
  {
    MutexLock lock(mutex_);
    Peer& peer = *peers_[node.index()];
    for (const auto& [id, work] : peer.known) {
      work->dropped = true;
      if (work->stage == Work::Stage::cold) cold_.erase({work->request.priority, work->arrival});
    }
    peer.known.clear();
    peer.ready.clear();
    peer.replies.clear();
    peer.sending = peer.loading = 0;
    pins.swap(peer.pins);
  }
}

}  // namespace clairfs
