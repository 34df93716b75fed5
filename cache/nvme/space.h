// NvmeSpace knows which slots of the segment files are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/base/free_runs.h"

namespace clairfs {

/// Unit of space in the NVMe store, and the alignment that O_DIRECT asks of every device in use: 4 KiB.
inline constexpr uint32_t kSlotSize = 4096;

/// A full store leaves one part in this many free, so that a free run of the right size is mostly found:
/// chunks of 110 KB, give or take a fifth, that replace each other lie in 3 runs on average; in 10 with
/// nothing free, each of them a transfer and an index record. A write may use it, when slots that were to
/// come free are still being read.
inline constexpr uint64_t kSlackDivisor = 256;

constexpr uint32_t slots_for(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + kSlotSize - 1) / kSlotSize);
}

/// A run of slots, within one segment.
using Extent = UnitRun;

/// Free runs of slots, never over a segment's boundary. Slots are numbered through all segments: segment s
/// begins at slot s * segment_slots. Not thread-safe.
class NvmeSpace {
 public:
  explicit NvmeSpace(uint32_t segment_slots) : free_(segment_slots) {}

  /// Gives slots (back). REQUIRES: none of them is free now.
  void release(Extent extent) { free_.release(extent); }
  /// One run of `slots`, taken from the smallest free run that holds it; empty if there is none.
  std::vector<Extent> allocate_run(uint32_t slots) { return allocate_runs(slots, 1); }
  /// At most `max_extents` runs, the largest first and for the rest the smallest that holds it, else a large
  /// one would be cut for nothing; empty if that is not enough.
  std::vector<Extent> allocate_runs(uint32_t slots, size_t max_extents);

  /// Whether allocate_run() would find one.
  bool has_run(uint32_t slots) const { return free_.fit(slots, 1); }
  uint64_t free_slots() const { return free_.units(); }
  size_t runs() const { return free_.runs(); }

 private:
  FreeRuns free_;
};

}  // namespace clairfs
