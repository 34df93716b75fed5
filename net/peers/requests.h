// The seam to what a node does with the others' requests: before it has a cache to serve from, and after.
#pragma once

#include "net/group/membership.h"
#include "net/transport/transport.h"
#include "net/transport/wire.h"

namespace clairfs {

/// Called on the net thread; never waits.
class PeerRequests {
 public:
  virtual ~PeerRequests() = default;
  virtual void on_requests(NodeId from, const wire::ChunkRequests& requests) = 0;
  virtual void on_reprioritize(NodeId from, const wire::Reprioritize& reprioritize) = 0;
  virtual void on_probe(NodeId from, const wire::Probe& probe) = 0;
  virtual void on_peer_change(NodeId peer, PeerState state) = 0;
  /// Nothing more is sent. From any thread.
  virtual void stop() = 0;
};

/// A node that serves nothing yet: it knows of no request, and answers probes so.
class UnservedRequests final : public PeerRequests {
 public:
  /// The transport outlives it.
  explicit UnservedRequests(Transport& transport) : transport_(transport) {}

  void on_requests(NodeId, const wire::ChunkRequests&) override {}
  void on_reprioritize(NodeId, const wire::Reprioritize&) override {}
  void on_probe(NodeId from, const wire::Probe& probe) override {
    (void)transport_.send(from, wire::encode(wire::ProbeAnswer{probe.ids, 0}));
  }
  void on_peer_change(NodeId, PeerState) override {}
  void stop() override {}

 private:
  Transport& transport_;
};

}  // namespace clairfs
