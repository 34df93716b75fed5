// Asks other nodes for pieces of chunks, and makes sure that every request ends.
//
// A fetch waits in the queue of its peer, by priority, until the peer has credit for it (bytes asked for and
// not yet here); then its receive is posted and the request sent. The peer answers with a reply (status,
// checksum) and a transfer, in either order. When both are there and the checksum agrees, the fetch is done.
//
// Requests that fill tiers have a part of that credit, and wait for it while anything else is to be asked
// for.
//
// Requests that come within a fraction of a millisecond travel in one message; a waiting reader's goes at
// once and takes the others along.
//
// Deadlines. A peer may rightly take long: a home reads a chunk from the PFS before it serves it, in the
// order of priority. So what counts first is whether it lives: when requests are unanswered for a while the
// peer is probed, and a net thread that is alive answers at once, also saying which of the requests it does
// not know (they were lost). Silence beyond a small multiple of the peer's usual latency is the end for all
// requests to it, and Membership is told. A living peer gets up to `most_wait` a request: then the node has a
// trouble that it does not know of. In each case the caller goes elsewhere.
//
// A node whose PFS mount hangs lives, and would cost every reader that wait. Its answers to probes say how
// long readers have waited while the PFS brought nothing for anybody. After `most_stall` its PFS is left
// alone: all that it has not answered is given up, and RoutedSource asks it only for what it has in memory or
// on NVMe, which it answers at once. It is still asked how it is, and gets other requests again when its PFS
// has brought something, or after `leave_alone`. While this node's own PFS brings nothing either no peer is
// left alone: then it is one PFS that pauses for all, and each node that went there itself would have it
// read, once it is back, what the homes are about to read anyway.
//
// Threads: start() and demand_changed() from any; messages, ticks and all completions on the net thread. Its
// thread ("peer-batch") sends requests that were held back to travel together; it sleeps when there are none.
// mutex_ is a leaf: not held while the transport or a call-back is called.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/thread.h"
#include "cache/source/source.h"
#include "net/group/membership.h"
#include "net/peers/source_choice.h"
#include "net/transport/transfer_numbers.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

enum class PeerOutcome : uint8_t {
  ok,           ///< the bytes are there, and their checksum is right
  not_here,     ///< the peer does not have it
  failed,       ///< the peer could not read it
  late,         ///< no answer in time
  gone,         ///< the peer is dead or has left
  corrupt,      ///< wrong bytes came
  memory_lost,  ///< late or gone, and the network may still write to the memory: see FetchFailure
  cancelled,    ///< stop()
};

/// A piece of a chunk that a peer is asked for.
struct PeerFetch {
  NodeId peer;
  ChunkId chunk;
  uint32_t offset = 0;        ///< within the chunk
  uint32_t length = 0;        ///< bytes, at least 1; the sum of `memory`
  std::vector<iovec> memory;  ///< the fetch's until `done`
  /// Never null, and of this fetch alone as long as it is under way.
  std::shared_ptr<const Demand> demand;
  bool home = false;       ///< the peer is the chunk's home
  bool only_here = false;  ///< it is to bring what it has, and to read no PFS for it
  /// Called exactly once, on the net thread; after stop() perhaps within start().
  std::function<void(PeerOutcome)> done;
};

struct PeerClientOptions {
  /// Bytes asked of one peer at a time, twice as many if readers wait, one part in kFillDivisor to fill
  /// tiers: 4 ms at 2 GB/s, several times the latency of a busy node, and two of the largest chunks; more
  /// would only queue there.
  uint64_t credit = 8U << 20;
  /// Requests to one peer at a time, shared out likewise: tiny chunks must not fill the peer's memory with
  /// bookkeeping.
  uint32_t most_requests = 512;
  /// How long requests are held back to travel together: far below the latency of anything that is fetched
  /// ahead of need.
  Duration batch_delay = std::chrono::microseconds(100);
  /// Requests unanswered for so long are asked about. Short against the silence below, long against an answer
  /// from memory or NVMe.
  Duration probe_after = std::chrono::milliseconds(200);
  /// Silence that ends all requests to a peer: this many times its usual latency, within bounds. The floor is
  /// well above what a living node takes on an overcommitted machine (0.3 s were seen on two cores at load
  /// 7); the ceiling is what a reader may wait.
  double silence_factor = 8;
  Duration least_silence = std::chrono::seconds(2);
  Duration most_silence = std::chrono::seconds(4);
  /// A fetch that took longer is a slow one (SlowPeerDetector): longer than it takes on an overcommitted
  /// machine or in a congested network, other than for moments, and more than a PFS takes that is not
  /// congested itself.
  Duration slow_fetch = std::chrono::milliseconds(500);
  /// Longest wait for one request to a living peer: beyond any queue of a healthy PFS. A fill's counts from
  /// when it was sent.
  Duration most_wait = std::chrono::seconds(30);
  /// A peer whose PFS has brought nothing for so long, though a reader waits for it, is left alone: longer
  /// than a PFS pauses that lives, and what a reader may wait once for a peer that answers. So long a peer
  /// that is left alone may take for what it has, too.
  Duration most_stall = std::chrono::seconds(5);
  /// For so long, or until it says that its PFS has brought something. Then requests try it again, whatever
  /// it says: of one file that hangs it cannot tell when nothing else is asked of its PFS. A try costs
  /// `probe_after`.
  Duration leave_alone = std::chrono::seconds(30);
};

/// Thread-safe but where it says "net thread". The dependencies outlive it; destroyed after the transport was
/// stopped.
class PeerClient {
 public:
  struct Deps {
    Transport& transport;
    Membership& membership;
    TransferNumbers& numbers;
    const Clock& clock;
    Metrics& metrics;
    Logger& log;
  };

  PeerClient(const Deps& deps, const PeerClientOptions& options);
  ~PeerClient();

  void start(PeerFetch fetch);
  /// As ChunkSource's. The peer, if it was asked already, is told of another kind of priority only, not of
  /// another deadline.
  void demand_changed(const Demand& demand);
  /// How long a fetch of `length` bytes from `peer` would take if it were asked now.
  Duration predict(NodeId peer, uint64_t length) const;
  /// The peer has brought nothing in reasonable time for some seconds: see SlowPeerDetector.
  bool slow(NodeId peer) const;
  /// See SlowPeerDetector::take_trial().
  bool take_trial(NodeId peer);
  /// Its PFS hangs, as far as is known: it is to be asked only for what it has (PeerFetch::only_here).
  bool left_alone(NodeId peer) const;
  /// The measured latency and bandwidth of the path to the peer.
  Duration latency(NodeId peer) const;
  double bandwidth(NodeId peer) const;  ///< bytes a second
  /// All fetches end with `cancelled`: what is queued now, what is under way as soon as its memory is free.
  void stop();

  // Of the net thread.
  void on_replies(NodeId from, const wire::ChunkReplies& replies);
  void on_probe_answer(NodeId from, const wire::ProbeAnswer& answer);
  void on_peer_change(NodeId peer, PeerState state);
  void tick(TimePoint now);

 private:
  struct Pending;
  struct Peer;

  std::shared_ptr<Pending> find(NodeId peer, uint32_t id) REQUIRES(mutex_);
  void dispatch(NodeId peer, bool refill);
  std::vector<std::shared_ptr<Pending>> take_batch(Peer& peer, bool refill) REQUIRES(mutex_);
  void send_reprioritize(NodeId peer, uint32_t id, const Priority& priority);
  void send_batch(NodeId peer, const std::vector<std::shared_ptr<Pending>>& batch);
  void give_up(NodeId peer, const std::vector<uint32_t>& ids, PeerOutcome why);
  void give_up_all(NodeId peer, PeerOutcome why);
  void settle(NodeId peer, uint32_t id);
  void finish(const Pending& pending);
  PeerOutcome check_outcome(const Pending& pending) const;
  void count(const Pending& pending, PeerOutcome outcome);
  bool pfs_pauses(TimePoint now);
  void check(NodeId peer, TimePoint now);
  void send_batches();

  // Constant after construction.
  const Deps deps_;
  const PeerClientOptions options_;

  // Of the net thread.
  TimePoint next_check_{};
  TimePoint pfs_heard_;     // when this node's PFS was last seen to bring something, or to be idle
  uint64_t pfs_ended_ = 0;  // its reads, by then

  mutable Mutex mutex_;
  CondVar wake_;  // for the batch thread, and for stop()
  std::vector<std::unique_ptr<Peer>> peers_ GUARDED_BY(mutex_);
  std::unordered_map<const Demand*, std::shared_ptr<Pending>> by_demand_
      GUARDED_BY(mutex_);                          // all of all peers
  std::set<NodeId> held_back_ GUARDED_BY(mutex_);  // peers with requests for the batch thread
  size_t pumping_ GUARDED_BY(mutex_) = 0;          // threads that are posting receives
  bool stopped_ GUARDED_BY(mutex_) = false;
  NamedThread batcher_;  // last: uses the others
};

}  // namespace clairfs
