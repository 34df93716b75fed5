// Bulk transfers over MPI, straight between the memory of both sides.
//
// A transfer of at most kPiece bytes is one MPI message, its tag the transfer's number with kWhole. A larger
// one is an announcement (kAnnounced) of its size, then pieces of kPiece bytes, the last one shorter, with
// the bare number. So the memory of both sides may be cut differently, and a peer that sends more or less
// than was expected is found out at its first message: that finds no receive, or has another length or
// content than was expected.
//
// Messages that arrive and have no receive (cancelled, unknown, too many bytes) are received into one scratch
// buffer for all, never looked at, so that the sender's requests end and nothing piles up within MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <mpi.h>
#include <sys/uio.h>

#include "cache/base/clock.h"
#include "cache/base/result.h"
#include "cache/base/types.h"
#include "net/mpi/requests.h"
#include "net/transport/transport.h"

namespace clairfs {

/// Net thread only.
class MpiBulk {
 public:
  /// The end of a message is the only progress that MPI shows, so that pieces must end often enough for
  /// polling to stay hot (5 ms at 100 MB/s). 256 KiB to 1 MiB are equally fast, larger ones slower
  /// (tests/bench/programs/transport_bench.cc).
  static constexpr size_t kPiece = 512 << 10;
  static constexpr int kWhole = kTransferNumbers;
  static constexpr int kAnnounced = 2 * kTransferNumbers;
  /// The highest tag that MPI must support (MPI_TAG_UB).
  static constexpr int kHighestTag = 3 * static_cast<int>(kTransferNumbers) - 1;

  /// `comm` carries nothing but bulk transfers. `requests` outlives this.
  MpiBulk(MPI_Comm comm, MpiRequests& requests);

  /// The contracts of transport.h. A transfer that MPI cannot receive ends with ECANCELED and MPI's reason.
  void receive(NodeId from, TransferNumber number, const std::vector<iovec>& memory,
               Transport::ReceiveDone done);
  void cancel(NodeId from, TransferNumber number);
  void send(NodeId to, TransferNumber number, const std::vector<iovec>& memory, Transport::SendDone done);

  /// Takes messages without a receive off the network. True if there was any.
  bool take_strays();
  /// Gives up, with EBUSY, receives that were cancelled long ago and that MPI still holds.
  void abandon_overdue(TimePoint now);

  size_t receiving() const { return receives_.size(); }
  /// At the end: cancels all receives, ...
  void cancel_all();
  /// ... and later calls back for all that is still there: receives with EBUSY, sends with ECANCELED.
  void abandon_all();

 private:
  struct Receive {
    Transport::ReceiveDone done;  // null once called
    std::vector<MpiRequests::Id> requests;
    size_t outstanding = 0;  // of them
    uint64_t size = 0;
    uint64_t announced = 0;   // where the announcement lands
    bool withdrawn = false;   // MPI was asked to cancel
    bool incomplete = false;  // and did
    bool wrong_size = false;
    std::string trouble;  // MPI's reason not to receive
    TimePoint give_up = TimePoint::max();
  };
  struct Send {
    Transport::SendDone done;  // null once called
    size_t outstanding = 0;
    uint64_t announced = 0;
  };
  using Key = uint64_t;
  static Key key(uint32_t from, TransferNumber number) { return uint64_t{from} << 32 | number; }

  void message_ended(Key key, Receive& receive, const MPI_Status& status, size_t expected);
  void withdraw(Receive& receive);
  void finish(Key key, Receive& receive);
  void abandon(Key key, Receive& receive);
  void finish(Key key, Send& send);

  const MPI_Comm comm_;
  MpiRequests& requests_;
  std::unordered_map<Key, std::shared_ptr<Receive>> receives_;
  std::unordered_map<Key, std::shared_ptr<Send>> sends_;  // counted
  Key next_send_ = 0;
  std::vector<std::byte> scratch_;
};

}  // namespace clairfs
