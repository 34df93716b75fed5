// Reads a source tree into a catalog.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/memory_limit.h"
#include "cache/catalog/record_chunks.h"
#include "cache/catalog/scan_pace.h"

namespace clairfs {

/// The control directory's, which a mount has at its top.
inline constexpr const char* kReservedName = ".clairfs";

struct ScanOptions {
  uint32_t chunk_size = 4U << 20;               ///< bytes, at least 1
  std::vector<RecordChunk> record_chunks = {};  ///< see record_chunks.h
  ScanThreads threads = {};                     ///< fewer where the limit of open files asks for it
  /// An entry of this name in the top directory is left out; empty: none.
  std::string reserved = kReservedName;
  /// Bytes that the catalog, and a scan at its peak, may take.
  uint64_t most_memory = kNoMemoryLimit;
};

/// Entries found so far. Called on the thread that scans, first with 0, then about ten times a second, and at
/// the end.
using ScanProgress = std::function<void(uint64_t entries)>;
inline constexpr auto kProgressPeriod = std::chrono::milliseconds(100);

/// Scans the tree below `source`, which may itself be a symlink. The result is the same for any number of
/// threads. Special files and `reserved` are left out. Files that this user may not read are left out, such
/// directories left empty. One log line of each kind says how many there are and names some. Entries that
/// vanish meanwhile are left out silently. Holds at most 2 descriptors a thread, and two more. Errors:
/// `source` missing, not a directory or not readable; an entry that cannot be read for another reason than
/// permission; out of descriptors or memory; more entries or chunks than can be numbered; ENOMEM as soon as
/// there are more names than `most_memory` is enough for.
Result<std::shared_ptr<const Catalog>> scan_catalog(const std::string& source, const ScanOptions& options,
                                                    Logger& log, const ScanProgress& progress = {});

/// `wanted`, but at least 1 and no more than the limit of open files bears at 2 descriptors a thread, leaving
/// three quarters of it to others.
ScanThreads threads_within_limits(ScanThreads wanted);

}  // namespace clairfs
