// The seam to the placement: which nodes keep which chunk.
#pragma once

#include <vector>

#include "cache/base/types.h"

namespace clairfs {

/// Immutable and thread-safe; asked for every fetch, so it answers within a microsecond or so.
class HomeDirectory {
 public:
  virtual ~HomeDirectory() = default;
  /// The nodes that keep the chunk, its home first, then those with copies; empty if no node keeps it.
  virtual std::vector<NodeId> holders(ChunkId chunk) const = 0;
};

}  // namespace clairfs
