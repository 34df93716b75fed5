// Which slots of the segment files are free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace clairfs {

/// Unit of space in the NVMe store, and the alignment that O_DIRECT asks of every device in use: 4 KiB.
inline constexpr uint32_t kSlotSize = 4096;

/// One part in so many of a full store is left free, so that a free run of the right size is mostly found:
/// chunks of 110 KB, give or take a fifth, that replace each other lie in 3 runs on average; in 10 with
/// nothing free, each of them a transfer and an index record. A write may use it, when slots that were to
/// come free are still being read.
inline constexpr uint64_t kSlackDivisor = 256;

constexpr uint32_t slots_for(uint64_t bytes) {
  return static_cast<uint32_t>((bytes + kSlotSize - 1) / kSlotSize);
}

/// `count` slots from number `first` on, within one segment. Slots are numbered through all segments: segment
/// s begins at slot s * segment_slots.
struct Extent {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const Extent&) const = default;
};

/// Free runs of slots: best fit, neighbours coalesced, never over a segment's boundary. Not thread-safe.
class NvmeSpace {
 public:
  explicit NvmeSpace(uint32_t segment_slots) : segment_slots_(segment_slots) {}

  /// Gives slots (back). REQUIRES: none of them is free now.
  void release(Extent extent);
  /// One run of `slots`, taken from the smallest free run that holds it; empty if there is none.
  std::vector<Extent> allocate_run(uint32_t slots);
  /// At most `max_extents` runs, the largest first and for the rest the smallest that holds it; empty if that
  /// is not enough.
  std::vector<Extent> allocate_runs(uint32_t slots, size_t max_extents);

  uint64_t free_slots() const { return free_slots_; }
  size_t runs() const { return by_address_.size(); }

 private:
  void insert(Extent run);
  void erase(Extent run);
  Extent take(Extent run, uint32_t slots);

  const uint32_t segment_slots_;
  std::map<uint32_t, uint32_t> by_address_;          // first -> count
  std::set<std::pair<uint32_t, uint32_t>> by_size_;  // (count, first): equal sizes from low addresses up
  uint64_t free_slots_ = 0;
};

}  // namespace clairfs
