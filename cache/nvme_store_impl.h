// NvmeStore::open() with a layout of choice: tests take small segments.
#pragma once

#include <memory>

#include "cache/nvme_segments.h"
#include "cache/nvme_store.h"

namespace clairfs {

Result<std::unique_ptr<NvmeStore>> open_nvme_store(const NvmeOptions& options, const SegmentLayout& layout,
                                                   IoBackend& io, Logger& log, Metrics& metrics);

}  // namespace clairfs
