// Fetches that wait for a place among the operations of a source, the most urgent first, and what of them is
// read in one operation.
//
// Fetches of neighbouring bytes of a file are taken together: one read of a MiB costs a server hardly more
// than one of 128 KiB. They only are while they wait, so that a source that is not busy reads each at once,
// unless it is told that more are about to come (ChunkSource::gather()).
//
// Of prefetches that are needed at about the same time the one is taken first that goes on where the last
// operation ended. Several ranks read blocks of a file by turns, and each asks for the next of its own: by
// deadline alone a disk would seek to and fro between them. But what was left out before that place comes
// first, or it would be sought for once it is urgent.
//
// The rest of a chunk (FetchRequest::rest) is not urgent, but where each operation costs the source much it
// comes along with what lies beside it (operation_cost.h).
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cache/base/types.h"
#include "cache/source/demand.h"
#include "cache/source/source.h"

namespace clairfs {

/// Not thread-safe: its owner calls it under a lock.
class FetchQueue {
 public:
  /// The most that is taken together, in bytes: a request to the server of an NFS or a FUSE filesystem has
  /// no more. A larger read goes there in pieces, one after the other. Those of other reads come in
  /// between, and a disk then has to seek for each.
  static constexpr uint64_t kMostBytes = 1 << 20;
  /// Prefetches are taken together, or before the most urgent one, when none is needed so much later than
  /// that one, which the others delay; in microseconds.
  static constexpr uint64_t kMostLater = 100'000;

  struct Waiting {
    uint64_t arrival = 0;  ///< orders what is equally urgent; of this fetch alone
    FetchRequest request;
    bool alone = false;  ///< never taken together with others
    bool again = false;  ///< a descriptor that was open before has failed it
  };

  bool empty() const { return queue_.empty(); }
  /// Reads the demand of the request; after raising it later call demand_changed().
  void add(Waiting fetch);
  /// Nothing happens if no fetch with this demand waits.
  void demand_changed(const Demand& demand);
  /// The priority of the most urgent fetch. REQUIRES: not empty.
  Priority first() const { return queue_.begin()->first.first; }
  /// Whether the most urgent fetch may wait for neighbours to come. REQUIRES: not empty.
  bool first_may_wait() const { return !first().is_demand() && !queue_.begin()->second.alone; }
  /// Takes the most urgent fetch, or the prefetch that goes on where the last operation ended, and with it
  /// neighbours of the same kind of priority: of one file, in the order of their bytes, without gaps, at most
  /// IOV_MAX pieces of memory. With those for which readers wait come the prefetches beside them, too, that
  /// are needed about as soon as any, if there is room, and with all fetches comes the rest of a chunk
  /// beside them that has at most `along` bytes. REQUIRES: not empty.
  std::vector<Waiting> take_first(uint64_t along);
  /// Takes all, in no order.
  std::vector<Waiting> take_all();

 private:
  using Key = std::pair<Priority, uint64_t>;  // by priority, then by arrival
  using Queue = std::map<Key, Waiting>;

  Priority least_beside(const Priority& most) const;
  Queue::iterator next_to_take();
  Waiting take(Queue::iterator at);
  Queue::iterator with(const Demand* demand);
  Queue::iterator after(const FetchRequest& request);
  Queue::iterator before(const FetchRequest& request);

  Queue queue_;
  std::unordered_map<const Demand*, Key> keys_;
  // Of what is not alone, by file and offset. Of several that begin at the same byte the first.
  std::map<std::pair<FileId, uint64_t>, const Demand*> places_;
  std::pair<FileId, uint64_t> ended_{FileId(), UINT64_MAX};  // where the last operation did; at first nowhere
};

}  // namespace clairfs
