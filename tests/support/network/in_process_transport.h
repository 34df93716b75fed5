// A network within one process, for tests of everything above the transport: what real networks do rarely,
// this one does on purpose.
//
// Every endpoint has a net thread of its own, as every node has. What is sent is first queued at the sender,
// whose thread decides its fate (delay, loss) by a random generator of that pair of nodes: the same seed and
// the same sequence of sends have the same faults. Messages of a pair stay in order, transfers overtake them
// and each other. A transfer's bytes are copied from the sender's memory when they arrive, so that memory
// that is given back too early is seen as wrong data (and by ThreadSanitizer).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "net/transport/transport.h"
#include "tests/support/eventually.h"

namespace clairfs {

/// Probabilities are per message or transfer.
struct NetworkFaults {
  Duration least_delay{};
  Duration most_delay{};
  double lose_message = 0;
  double lose_transfer = 0;
  double corrupt_transfer = 0;  ///< one bit of it arrives flipped
  /// Arrives in part and never ends: a cancel gives EBUSY, and the memory goes on being written to.
  double stuck_transfer = 0;
  double fail_transfer = 0;  ///< the receive ends with ECANCELED, which nobody asked for
};

/// Thread-safe. Outlives the use of its endpoints; the memory of stuck transfers outlives their stop().
class InProcessNetwork {
 public:
  InProcessNetwork(uint32_t nodes, uint64_t seed, const NetworkFaults& faults = {});
  ~InProcessNetwork();

  Transport& endpoint(NodeId node);
  /// For what is sent from now on.
  void set_faults(const NetworkFaults& faults);
  /// kill -9: nothing arrives there or leaves from there any more. (Its ticks go on, so that whoever uses it
  /// comes to an end.)
  void kill(NodeId node);
  /// SIGSTOP of the net thread: no ticks; what was sent, both ways, waits until wake().
  void hang(NodeId node);
  void wake(NodeId node);
  /// Messages on their way to the node.
  size_t queued(NodeId node) const;
  /// Transfers that have arrived at the node in part and will never end.
  size_t stuck(NodeId node) const;
  /// One is passed after all that a node's thread does: what arrives or leaves there, and each of its ticks.
  /// So a test waits here for what nodes bring about.
  SequencePoints& points();

 private:
  class Endpoint;
  struct Bulk;
  struct Shared;
  const std::unique_ptr<Shared> shared_;
};

}  // namespace clairfs
