// The seam to the network: messages and bulk transfers between the daemons of a job.
//
// Two kinds of traffic. A message is small, arrives whole, and in order between two nodes; it is what
// requests and replies are written in. A bulk transfer carries a chunk's bytes: the receiver first says where
// they are to land, and gives the transfer a number that it puts into its request; the sender then sends
// under that number. So bytes land in their destination without a copy where the network can do that. A
// transfer has any number of bytes, none included, and the two sides may cut their memory differently. A
// message is not to wait for the transfers that were queued before it: a node that is silent for seconds
// counts as dead.
//
// Nothing is ever acknowledged: only silence tells that a peer is dead, hung or slow. A caller that waits has
// its own deadline (see tick) and cancels.
//
// Threads: one thread of the transport's own ("net") speaks to the network and makes every call-back. The
// public calls are thread-safe, only queue, and never wait, stop() excepted: call-backs make all of them but
// that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "cache/base/clock.h"
#include "cache/base/result.h"
#include "cache/base/types.h"

namespace clairfs {

/// Largest message: what a batch of a thousand chunk requests needs; anything longer is a bulk transfer.
inline constexpr size_t kMaxMessage = 64 << 10;

/// Names a bulk transfer between two nodes. The receiver counts them up from 0; they may wrap at
/// kTransferNumbers, long after the earlier one of the same number is over.
using TransferNumber = uint32_t;
inline constexpr TransferNumber kTransferNumbers = 1U << 26;  // fits the tags of every MPI in use

/// Thread-safe.
class Transport {
 public:
  /// REQUIRES: the first two are there.
  struct Handlers {
    /// A message arrived. The bytes are untrusted and valid only during the call. Must not wait.
    std::function<void(NodeId from, std::span<const std::byte> message)> message;
    /// Called for deadlines as long as the transport runs, at least every 20 ms; at least every 60 ms once
    /// nothing was queued, came or ended for half a second but what stands alone. Must not wait.
    std::function<void(TimePoint now)> tick;
    /// Whether nothing follows soon upon this message, sent or received: a transport that looks for messages
    /// again and again then looks no sooner for its sake. The bytes are untrusted. Without it: of none.
    std::function<bool(std::span<const std::byte> message)> stands_alone = {};
  };
  /// OK: the bytes are there. ECANCELED: cancelled or stopped, or the network cannot receive them; the memory
  /// is its owner's again. EBUSY: cancelled or stopped, but the network may still write to the memory: it
  /// must not be used again as long as the process lives. EMSGSIZE: the peer sent another number of bytes.
  using ReceiveDone = std::function<void(Status)>;
  /// OK: the memory may be used again (says nothing of arrival). ECANCELED: stopped.
  using SendDone = std::function<void(Status)>;

  virtual ~Transport() = default;
  virtual NodeId self() const = 0;
  virtual uint32_t size() const = 0;  ///< nodes of the job, this one included
  /// The networks that carry the bytes, for people.
  virtual std::string network_text() const = 0;

  /// Once, before anything else. Messages that came before are kept and delivered then.
  virtual void start(Handlers handlers) = 0;

  /// Queues a message. Errors: EMSGSIZE; EAGAIN when too much is queued for that peer already (it does not
  /// read); ECANCELED after stop(). REQUIRES: `to` is not self().
  virtual Status send(NodeId to, std::vector<std::byte> message) = 0;

  /// Says where transfer `number` from `from` is to land. Calls `done` exactly once, from the net thread;
  /// if the peer is dead perhaps only when it is cancelled. REQUIRES: called before the request that names
  /// `number` is sent.
  virtual void receive(NodeId from, TransferNumber number, std::vector<iovec> memory, ReceiveDone done) = 0;
  /// The receive is not wanted any more; its `done` follows. Bytes that arrive for it later are thrown away.
  /// Unknown numbers are ignored.
  virtual void cancel(NodeId from, TransferNumber number) = 0;

  /// Sends `memory` as transfer `number` of `to`. Calls `done` exactly once, from the net thread; for a dead
  /// peer perhaps only at the end, so callers bound the bytes under way.
  virtual void send_bulk(NodeId to, TransferNumber number, std::vector<iovec> memory, SendDone done) = 0;

  /// Every outstanding `done` is called with ECANCELED (or EBUSY, see ReceiveDone), and the thread ends.
  /// Later calls do nothing and call nothing back (send: ECANCELED). Waits at most `patience` for queued
  /// messages to leave. May be called again.
  virtual void stop(Duration patience) = 0;
};

}  // namespace clairfs
