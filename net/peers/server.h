// Answers what other nodes ask for, from this node's cache.
//
// A chunk is served if it is in memory or on NVMe here, or if this node is its home: then it is read from the
// PFS, once, for all nodes that ask. Nothing is asked of a third node on behalf of another, so nodes never
// wait for each other in a circle; requests for other chunks are refused at once. A node that takes this one
// for the chunk's home is believed: it knows of a plan or of a death that this one has not heard of yet, and
// would read the PFS itself. One that knows this node's PFS to hang asks only for what is here.
//
// Chunks in memory or on NVMe are sent in order of priority, a few megabytes at a time to each peer. Requests
// that need the PFS, if only to compare a file with it, wait in another queue, by priority over all peers, so
// that they never delay the first. A chunk stays pinned until its transfer has left; if the receiver is taken
// for dead the pin is dropped before, since that transfer may never leave: should the receiver wake after
// all, it gets bytes whose checksum is wrong.
//
// Threads: messages and changes of peers come on the net thread, loaded chunks on any. mutex_ is a leaf: not
// held while the cache or the transport is called, or a pin is dropped.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "net/group/membership.h"
#include "net/peers/requests.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

struct PeerServerOptions {
  /// Bytes on their way to one peer: enough to keep its network busy, few enough that what becomes urgent
  /// does not wait long behind them (4 ms at 1 GB/s). Nothing more is read for it from the PFS when twice as
  /// many are on their way or being read for it.
  uint64_t sending = 4U << 20;
  /// Bytes of chunks being read from the PFS for all peers: what a PFS needs in flight for its full rate (1
  /// GB/s at 16 ms); the rest waits here, where it is sorted by priority. Fills take one part in kFillDivisor
  /// of it, or one chunk, and no room of the others.
  uint64_t loading = 16U << 20;
  /// Requests of one peer that may wait: many times what a peer sends (PeerClientOptions::most_requests).
  size_t most_waiting = 4096;
};

/// The dependencies outlive it; destroyed after the transport and the cache were stopped.
class PeerServer final : public PeerRequests {
 public:
  struct Deps {
    Transport& transport;
    ChunkCache& cache;
    const Catalog& catalog;
    Membership& membership;
    const Clock& clock;
    Metrics& metrics;
    /// Whether this node is the chunk's home as far as it knows. Thread-safe.
    std::function<bool(ChunkId)> is_home;
  };

  PeerServer(Deps deps, const PeerServerOptions& options);
  ~PeerServer() override;

  void on_requests(NodeId from, const wire::ChunkRequests& requests) override;
  void on_reprioritize(NodeId from, const wire::Reprioritize& reprioritize) override;
  void on_probe(NodeId from, const wire::Probe& probe) override;
  void on_peer_change(NodeId peer, PeerState state) override;

  /// Nothing more is sent, all pins are dropped. Loads under way end with the cache's stop().
  void stop() override;

 private:
  struct Work;
  struct Pin;
  struct Peer;
  using WorkPtr = std::shared_ptr<Work>;
  using Queue = std::map<std::pair<Priority, uint64_t>, WorkPtr>;  // by priority, then by arrival

  uint32_t length_of(const wire::ChunkRequest& request) const;
  bool may_load(const wire::ChunkRequest& request) const;
  Duration stalled(const Peer& peer, TimePoint now) const REQUIRES(mutex_);
  void dispatch(NodeId peer);
  WorkPtr next(Peer& peer) REQUIRES(mutex_);
  void start(const WorkPtr& work);
  void loaded(const WorkPtr& work, const Result<AcquiredChunk>& chunk);
  void sent(NodeId peer, uint64_t pin);
  void reply(const Work& work, wire::ChunkReply reply);
  void flush(NodeId peer);
  void drop(NodeId peer);

  // Constant after construction.
  const Deps deps_;
  const PeerServerOptions options_;

  Mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_ GUARDED_BY(mutex_);
  Queue cold_ GUARDED_BY(mutex_);                  // of all peers: what must be read from the PFS
  uint64_t loading_ GUARDED_BY(mutex_) = 0;        // bytes of chunks
  uint64_t loading_fills_ GUARDED_BY(mutex_) = 0;  // part of them
  TimePoint last_load_ GUARDED_BY(mutex_);         // when one ended, however it did; or see on_probe()
  uint64_t pfs_ended_ GUARDED_BY(mutex_) = 0;      // reads of the PFS, when a peer last asked
  uint64_t arrivals_ GUARDED_BY(mutex_) = 0;
  uint64_t last_pin_ GUARDED_BY(mutex_) = 0;
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace clairfs
