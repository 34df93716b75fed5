// Messages over MPI: one MPI message each, delivered in the order in which a peer sent them.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <mpi.h>

#include "cache/base/types.h"
#include "net/mpi/requests.h"
#include "net/transport/transport.h"

namespace clairfs {

/// Bytes to take of a message that is said to have `size`. Of one that is longer than any, or of which MPI
/// does not tell, none: MPI fails its receive, and it is dropped.
constexpr int bytes_taken(int size) {
  return size >= 0 && static_cast<size_t>(size) <= kMaxMessage ? size : 0;
}

/// Net thread only.
class MpiMessages {
 public:
  using Bytes = std::vector<std::byte>;
  using Deliver = std::function<void(NodeId from, std::span<const std::byte> message)>;
  using StandsAlone = std::function<bool(std::span<const std::byte> message)>;
  /// The result of poll().
  enum class Found : uint8_t {
    nothing,  ///< or messages that stand alone
    begun,    ///< a message that will be whole with the next look
    active,   ///< what more may follow upon
  };

  /// `comm` carries nothing but these messages. `requests` outlives this.
  MpiMessages(MPI_Comm comm, uint32_t size, MpiRequests& requests);

  /// `gone(error)` when the message has left, or with MPI's error when it cannot (the peer is dead).
  void send(NodeId to, Bytes message, std::function<void(int error)> gone);
  /// Takes what has come from the network and delivers what is whole.
  Found poll(const Deliver& deliver, const StandsAlone& stands_alone);

 private:
  /// A message on its way in: what is behind it in the queue waits until it is whole.
  struct Incoming {
    Bytes bytes;
    bool whole = false;
    bool failed = false;
  };

  Found take_one();
  bool deliver_whole(const Deliver& deliver, const StandsAlone& stands_alone);

  const MPI_Comm comm_;
  MpiRequests& requests_;
  std::vector<std::deque<std::shared_ptr<Incoming>>> incoming_;  // by rank
  size_t waiting_ = 0;                                           // entries in incoming_
};

}  // namespace clairfs
