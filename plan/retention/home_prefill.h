// Home prefill: a node reads its home chunks from the PFS once, ahead of need, in the order in which the job
// first uses them, and those of records after all others, in the order of their file; then the node's copies,
// in the same order.
//
// step() asks the cache for them at the lowest priority, so that the requests of readers and plans of all
// nodes come first, and for no more at a time than transit memory takes. The cache knows where each chunk
// comes from (the PFS for a home, its home for a copy), and its tier keeps the chunk; step() keeps no
// reference. Each placement gets one pass. A chunk that could not be read then is read when it is needed.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/base/clock.h"
#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/tasks/alarm.h"
#include "cache/tasks/step_thread.h"
#include "plan/placement/placement_map.h"

namespace clairfs {

/// How far it is with the placement in force.
struct PrefillProgress {
  uint64_t total = 0;    ///< bytes of the node's homes and copies
  uint64_t done = 0;     ///< of those, bytes that were there or have come
  uint64_t failed = 0;   ///< chunks that could not be had
  bool finished = true;  ///< nothing is left to ask for or under way
};

/// Thread-safe, except that step() is for one thread at a time. The parts outlive it. Fetches that are under
/// way at its end have no effect here.
class HomePrefill {
 public:
  HomePrefill(ChunkCache& cache, const Catalog& catalog);

  /// Begins with what `placement` gives `self`, in place of what went before; null: nothing more to do. The
  /// same placement again changes nothing.
  void set_placement(std::shared_ptr<const PlacementMap> placement, NodeId self);
  PrefillProgress progress() const;

  /// Asks for as many chunks as may be under way.
  Turn step(TimePoint now);
  /// Rings when there is something to do.
  Alarm& alarm();

 private:
  struct Shared;  // what completions reach, also after the end
  struct Pass;

  Turn ask(const std::shared_ptr<Pass>& pass, TimePoint now);
  void ask_for(const std::shared_ptr<Pass>& pass, ChunkId chunk, bool into_ram);

  // Constant after construction.
  ChunkCache& cache_;
  const Catalog& catalog_;
  const uint64_t most_into_ram_;    // bytes under way: as much as transit memory, which transfers fill well
  const uint64_t most_in_transit_;  // bytes under way

  const std::shared_ptr<Shared> shared_;
  TimePoint not_before_{};  // of step()
};

}  // namespace clairfs
