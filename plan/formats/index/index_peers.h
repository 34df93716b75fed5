// The seam to the other nodes of a job: one of them may have an index already, or be making it.
#pragma once

#include <cstdint>

#include "cache/base/fd.h"
#include "cache/base/result.h"
#include "plan/formats/index_work.h"

namespace clairfs {

class IndexPeers {
 public:
  virtual ~IndexPeers() = default;
  /// The index of that number (index_number()) as another node encodes it; what it says is not verified.
  /// Waits as long as a node is getting on with it. `work` may end that, and is told how far it is. One call
  /// at a time for each index. Errors: ECANCELED; any other: this node has to make it.
  virtual Result<Mapping> fetch(uint64_t index, IndexWork& work) = 0;
};

}  // namespace clairfs
