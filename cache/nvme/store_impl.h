// NvmeStore::open() and usable_bytes() with a layout of choice: tests take small segments.
#pragma once

#include <memory>

#include "cache/nvme/segments.h"
#include "cache/nvme/store.h"

namespace clairfs {

Result<std::unique_ptr<NvmeStore>> open_nvme_store(const NvmeOptions& options, const SegmentLayout& layout,
                                                   IoBackend& io, Logger& log, Metrics& metrics);

uint64_t usable_nvme_bytes(uint64_t capacity, uint32_t chunk_size, uint64_t mean_chunk,
                           const SegmentLayout& layout);

}  // namespace clairfs
