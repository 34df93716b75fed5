// The seam to wherever bytes come from when they are not here: the PFS, the other nodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <sys/uio.h>

#include "cache/base/result.h"
#include "cache/base/types.h"
#include "cache/source/demand.h"

namespace clairfs {

/// What only a source can say of a fetch that failed, beside the errno.
enum class FetchFailure : uint8_t {
  ordinary,     ///< nothing; also of a fetch that did not fail
  memory_lost,  ///< a network may still write to the memory, at any time: it is never to be used again
  /// Of an empty fetch: the file's ctime is not the catalog's, though its size and mtime are. It may have
  /// been written again and been given its old mtime back. Bytes that were copied earlier are not to be used.
  other_ctime,
};

/// The end of a fetch: where its bytes came from, or why it failed.
class [[nodiscard]] Fetched final : public Result<Origin> {
 public:
  Fetched(Origin origin) : Result<Origin>(origin) {}
  Fetched(Error error, FetchFailure failure = FetchFailure::ordinary)
      : Result<Origin>(std::move(error)), failure_(failure) {}

  FetchFailure failure() const { return failure_; }

 private:
  FetchFailure failure_ = FetchFailure::ordinary;
};

/// Where a fetch may take its bytes from.
enum class FetchScope : uint8_t {
  anywhere,      ///< this node's NVMe, the PFS or another node: it may have to wait for that node
  local_or_pfs,  ///< NVMe or the PFS; another node waits for it, so it waits for none
  local_only,    ///< NVMe
};

/// A contiguous piece of a source file and the memory that it goes to.
struct FetchRequest {
  FileId file;
  uint64_t offset = 0;
  /// Equals the sum of `memory`; within the file as the catalog knows it. 0: only compares the file with the
  /// catalog.
  uint64_t length = 0;
  std::vector<iovec> memory;
  /// Never null, and of this request alone as long as it is under way.
  std::shared_ptr<const Demand> demand;
  FetchScope scope = FetchScope::anywhere;  ///< never local_only: a source is asked for what is not here
  /// Called exactly once, from any thread, never from within start(), unless the source has been stopped. On
  /// success all `length` bytes are there and are the dataset's; says where from (peer or pfs).
  std::function<void(Fetched)> done;
  /// The rest of a chunk of which another request has what is needed sooner.
  bool rest = false;
  /// The caller's next request, which follows at once, may be read with this one: this one may wait for it.
  bool with_next = false;
};

/// Thread-safe.
class ChunkSource {
 public:
  virtual ~ChunkSource() = default;
  virtual void start(FetchRequest request) = 0;
  /// More requests follow at once, up to gathered(): those for parts of files for which no reader waits may
  /// be kept till then, so that neighbours among them are read together; less urgent ones may wait behind
  /// them. For one thread at a time, which may call it again before gathered(). Some milliseconds after the
  /// last call nothing is kept any more: the next request or answer at the source starts what was kept, at
  /// the latest its look for operations that hang. So the thread must not wait for a request of its own.
  virtual void gather() {}
  virtual void gathered() {}
  /// Whether a fetch of the chunk of `file` that starts at `offset` would be asked of another node now. The
  /// memory of such fetches is bounded, so that what this node serves to others never waits for others: nodes
  /// that wait for each other in a circle would all stand still until their deadlines.
  virtual bool may_wait_for_others(FileId, uint64_t /*offset*/) const { return false; }
  /// The demand of a request was raised. May be called at any time, before start() and after the end, too: a
  /// source that does not have the request reads its demand when it gets it.
  virtual void demand_changed(const Demand& demand) = 0;
  /// Queued fetches and all later ones fail with ECANCELED; those under way complete.
  virtual void stop() = 0;
};

}  // namespace clairfs
