// A dataset whose catalog does not fit into memory is refused in words, before the kernel ends the process.
#pragma once

#include <cerrno>
#include <cstdint>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "cache/base/result.h"
#include "cache/base/units.h"

namespace clairfs {

inline constexpr uint64_t kNoMemoryLimit = std::numeric_limits<uint64_t>::max();

/// `what`: the catalog, as the message begins with it. Both in bytes.
inline Error no_memory_for_catalog(const std::string& what, uint64_t needed, uint64_t available) {
  return Error{ENOMEM, fmt::format("{} takes {} of memory, but only {} is available (MemAvailable, or the "
                                   "cgroup's limit if that is lower); give the mount more memory, or mount "
                                   "a part of the dataset",
                                   what, format_size(needed), format_size(available))};
}

}  // namespace clairfs
