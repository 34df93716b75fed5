// NvmeStore::open() and usable_bytes() with a layout of choice: tests take small segments.
#pragma once

#include <memory>

#include "cache/nvme/index.h"
#include "cache/nvme/segments.h"
#include "cache/nvme/store.h"

namespace clairfs {

/// Less holds no useful number of chunks beside the index.
inline constexpr uint64_t kSmallestNvmeCapacity = 1 << 20;

Result<std::unique_ptr<NvmeStore>> open_nvme_store(const NvmeOptions& options, const SegmentLayout& layout,
                                                   IoBackend& io, const Clock& clock, Logger& log,
                                                   Metrics& metrics);

/// Bytes that segments may take. REQUIRES: capacity >= kSmallestNvmeCapacity.
uint64_t nvme_segment_limit(uint64_t capacity, const NvmeIndexLimits& limits, const SegmentLayout& layout);

uint64_t usable_nvme_bytes(uint64_t capacity, uint32_t chunk_size, uint64_t mean_chunk,
                           const SegmentLayout& layout);

}  // namespace clairfs
