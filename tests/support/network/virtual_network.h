// A network of many nodes in one thread and in time of its own, for what in_process_transport.h has too many
// threads for: a thousand nodes on a machine with two cores would measure the machine.
//
// Time passes only within run_for() and run_until(), from event to event. Each node has a network card that
// sends and receives with a bandwidth, one thing after the other, and all have the same latency; nothing is
// lost. The caller's thread is the net thread of all nodes. Sends from other threads leave at the time that
// it is for the caller by then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "cache/base/clock.h"
#include "net/transport/transport.h"

namespace clairfs {

struct VirtualNetworkOptions {
  double bytes_per_second = 1.25e9;                  ///< of a card, each way
  Duration latency = std::chrono::microseconds(50);  ///< from card to card
  Duration tick = std::chrono::milliseconds(20);     ///< the longest while something happens
  uint64_t message_overhead = 64;                    ///< bytes of headers that a message takes on its way
  uint64_t bulk_weight = 1;  ///< bytes that one of a transfer stands for: what is large takes memory
  /// A message has arrived and was acted upon.
  std::function<void(NodeId from, NodeId to, std::span<const std::byte> message)> arrived;
};

/// Thread-safe are the endpoints and the clock; the rest is for one thread. Outlives the use of its
/// endpoints.
class VirtualNetwork {
 public:
  /// What a node has sent.
  struct Traffic {
    uint64_t messages = 0;
    uint64_t message_bytes = 0;
    uint64_t bulk_bytes = 0;
  };

  VirtualNetwork(uint32_t nodes, const VirtualNetworkOptions& options = {});
  ~VirtualNetwork();

  Transport& endpoint(NodeId node);
  const Clock& clock() const;

  void run_for(Duration duration);
  /// Until `over`, which is asked after each tick of a node, but not longer than `most`. True if it came.
  bool run_until(const std::function<bool()>& over, Duration most);

  /// kill -9: nothing arrives there or leaves from there any more, and it has no ticks.
  void kill(NodeId node);
  /// SIGSTOP: no ticks; what is sent to it waits until wake().
  void hang(NodeId node);
  void wake(NodeId node);
  /// From now on all that it sends and receives is late by `delay`, and its card has this bandwidth.
  void slow_down(NodeId node, Duration delay, double bytes_per_second);

  Traffic sent(NodeId node) const;
  uint64_t bulk_bytes_received(NodeId node) const;

 private:
  class Endpoint;
  struct Shared;
  const std::unique_ptr<Shared> shared_;
};

}  // namespace clairfs
