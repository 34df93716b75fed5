// How much of chunks a store of some capacity holds.
#include <algorithm>

#include "cache/nvme/index.h"
#include "cache/nvme/store_impl.h"

namespace clairfs {

// What segments may hold: the capacity less the index's share, less two blocks each for directory and lock
// file, less what a filesystem takes for block maps. ext4 by its layout, not by measurement: a block for a
// file in more than four pieces, and 12 bytes a piece; 1/1024 allows a piece every 12 KiB. Only blocks of
// such maps could go beyond it, in a segment more finely scattered than that; file sizes never do.
uint64_t nvme_segment_limit(uint64_t capacity, const NvmeIndexLimits& limits, const SegmentLayout& layout) {
  constexpr uint64_t kFiles = 16 << 10;
  constexpr uint64_t kBlockMap = 8 << 10;
  const uint64_t files = capacity / (uint64_t{layout.segment_slots} * kSlotSize) + 1;
  return capacity - limits.share - kFiles - files * kBlockMap - capacity / 1024;
}

uint64_t usable_nvme_bytes(uint64_t capacity, uint32_t chunk_size, uint64_t mean_chunk,
                           const SegmentLayout& layout) {
  if (capacity < kSmallestNvmeCapacity) return 0;
  const NvmeIndexLimits limits = NvmeIndexLimits::of(capacity, mean_chunk);
  const uint64_t slots = nvme_segment_limit(capacity, limits, layout) / kSlotSize;
  const uint64_t segments = slots / layout.segment_slots + 1;
  // A chunk has one record, but those that fill what is left at the ends of segments have one for each end.
  const uint64_t records =
      limits.live_records - std::min<uint64_t>(limits.live_records, kMaxExtents + segments);
  const uint64_t share = std::max(kNvmeSmallestShare, mean_chunk / NvmeIndexLimits::kRuns);
  const uint64_t bytes = std::min((slots - slots / kSlackDivisor) * kSlotSize, records * share);
  // With more ends than a chunk may have extents, what is left at the smallest ones may be of no use.
  const uint64_t lost = (segments - 1) / kMaxExtents * chunk_size;
  return bytes - std::min(bytes, lost);
}

uint64_t NvmeStore::usable_bytes(uint64_t capacity, uint32_t chunk_size, uint64_t mean_chunk) {
  return usable_nvme_bytes(capacity, chunk_size, mean_chunk, SegmentLayout());
}

}  // namespace clairfs
