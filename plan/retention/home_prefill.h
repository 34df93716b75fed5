// Warm-up: a home reads its chunks from the PFS once, ahead of need, in the order in which the job first uses
// them; then come the node's copies, in the same order. (`clairfs warmup` is something else: a command that
// reads a mount through, mount-helper/commands/read_through.h.)
//
// One thread asks the cache for them at the lowest urgency, so that whatever a reader or a plan of any node
// asks for comes first. The cache knows where each chunk comes from (the PFS for a home, its home for a copy)
// and the tier that it is placed in keeps it; here it is let go of at once. Each placement gets one pass;
// what could not be had then is left to those who need it.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/base/thread.h"
#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "plan/placement/placement.h"

namespace clairfs {

/// How far it is with the placement in force.
struct WarmUpProgress {
  uint64_t total = 0;    ///< bytes of the node's homes and copies
  uint64_t done = 0;     ///< of those, bytes that were there or have come
  uint64_t failed = 0;   ///< chunks that could not be had
  bool finished = true;  ///< nothing is left to ask for or under way
};

/// Thread-safe. The parts outlive it.
class WarmUp {
 public:
  WarmUp(ChunkCache& cache, const Catalog& catalog);
  ~WarmUp() { stop(); }
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;
  /// Ends the thread without waiting for what is under way, which then has no effect here. Later calls do
  /// nothing.
  void stop();

  /// Begins with what `placement` gives `self`, in place of what went before; null: nothing more to do. The
  /// same placement again changes nothing.
  void set_placement(std::shared_ptr<const Placement> placement, NodeId self);
  WarmUpProgress progress() const;

 private:
  struct Shared;  // what completions reach, also after the end
  struct Pass;

  void run();
  void work_through(const std::shared_ptr<const Pass>& pass);
  bool ask_for(const std::shared_ptr<const Pass>& pass, ChunkId chunk, uint64_t place);
  bool wait_for_room(const std::shared_ptr<const Pass>& pass, uint64_t bytes, bool into_ram);

  // Constant after construction.
  ChunkCache& cache_;
  const Catalog& catalog_;
  const uint64_t most_into_ram_;    // bytes under way: as much as transit memory, which transfers fill well
  const uint64_t most_in_transit_;  // bytes under way

  const std::shared_ptr<Shared> shared_;
  NamedThread thread_;
};

}  // namespace clairfs
