// The seam to wherever bytes come from when they are not here: the PFS, the other nodes.
#pragma once

#include <algorithm>
#include <cerrno>
#include <compare>
#include <cstdint>
#include <functional>
#include <vector>

#include <sys/uio.h>

#include "cache/base/clock.h"
#include "cache/base/result.h"
#include "cache/base/types.h"

namespace clairfs {

/// How soon bytes are needed. Smaller is served first.
struct Urgency {
  enum class Kind : uint8_t {
    reader,    ///< somebody waits in a read
    prefetch,  ///< will be read at `deadline`
    fill,      ///< fills a tier when nothing else is to do
  };
  Kind kind = Kind::reader;
  uint64_t deadline =
      0;  ///< orders the requests of one kind: of a prefetch deadline_at(), of a fill any order
  auto operator<=>(const Urgency&) const = default;
};

/// Of the bytes that may be under way at once, fills take one part in this many: enough to use what is idle,
/// little enough not to stand in the way of what somebody needs.
inline constexpr uint64_t kFillDivisor = 8;

/// When a prefetch is needed, in microseconds of this node's Clock.
inline uint64_t deadline_at(TimePoint when) {
  const auto since = std::chrono::duration_cast<std::chrono::microseconds>(when.time_since_epoch()).count();
  return static_cast<uint64_t>(std::max<int64_t>(since, 0));
}

/// The code of a fetch that failed and whose memory may still be written to, at any time, by a network that
/// could not be told to stop: it must not be used again as long as the process lives. No read of a file fails
/// with it.
inline constexpr int kMemoryLost = ENOTRECOVERABLE;

/// The code of an empty fetch of a file whose ctime is not the catalog's, though its size and mtime are: it
/// may have been written anew and been given its old mtime back. What was copied of it earlier is not to be
/// used.
inline constexpr int kOtherCtime = EKEYEXPIRED;

/// A contiguous piece of a source file and the memory that it goes to.
struct FetchRequest {
  FileId file;
  uint64_t offset = 0;
  /// Equals the sum of `memory`; within the file as the catalog knows it. 0: only compares the file with the
  /// catalog.
  uint64_t length = 0;
  std::vector<iovec> memory;
  Urgency urgency;
  /// Another node waits for it, or the memory is not to wait for one: take it from the PFS.
  bool no_peers = false;
  /// Called exactly once, from any thread, never from within fetch(), unless the source has been stopped. On
  /// success all `length` bytes are there and are the dataset's; says where from (peer or pfs).
  std::function<void(Result<Origin>)> done;
};

/// Thread-safe.
class ChunkSource {
 public:
  using Ticket = uint64_t;
  virtual ~ChunkSource() = default;
  virtual Ticket fetch(FetchRequest request) = 0;
  /// Whether a fetch of the chunk of `file` that starts at `offset` would be asked of another node now. The
  /// memory of such fetches is bounded, so that what this node serves to others never waits for others: nodes
  /// that wait for each other in a circle would all stand still until their deadlines.
  virtual bool may_wait_for_peers(FileId, uint64_t /*offset*/) const { return false; }
  /// The fetch is as urgent as this by now, if that is more urgent than before. Unknown tickets are ignored.
  virtual void expedite(Ticket ticket, Urgency urgency) = 0;
  /// Queued fetches and all later ones fail with ECANCELED; those under way complete.
  virtual void stop() = 0;
};

}  // namespace clairfs
