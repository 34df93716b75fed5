// Finds the records of an index that can be trusted after a restart.
#pragma once

#include <cstdint>

#include "cache/base/result.h"
#include "cache/nvme/index.h"
#include "cache/nvme/segments.h"
#include "cache/nvme/table.h"

namespace clairfs {

struct NvmeRecoveryReport {
  uint64_t damaged_records = 0;  ///< torn, or incomplete
  uint64_t outside = 0;          ///< chunks that lie outside the segments (now)
  uint64_t overlapping = 0;      ///< chunks whose slots a later one was given
  uint64_t beyond_limit = 0;     ///< oldest chunks, for which a smaller index has no room
};

/// Fills the empty `table` with the chunks of `file`, newest first where they contradict each other, and with
/// the free slots that are left. Errors: reading the file fails; what was read until then is in the table.
Result<NvmeRecoveryReport> recover_chunks(const NvmeIndexFile& file, const NvmeSegments& segments,
                                          uint32_t live_records, NvmeTable& table);

}  // namespace clairfs
