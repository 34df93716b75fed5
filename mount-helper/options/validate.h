// Checks the paths of a mount before anything is started, so that bad input costs one clear line.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "fs/base/mountinfo.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// Makes the paths in `options` absolute and real, gives NVMe directories without a size their share of
/// the free space of their filesystem (80 % unless one was asked for), lowers others to what is free
/// (NvmeDir::asked), and checks source and mountpoint. `mounts` is current_mounts(). Changes nothing on disk.
/// Errors: one line with the cause and the fix; code ENOTCONN for a stale mount, EBUSY for a mount that is
/// there.
Result<MountOptions> resolve_paths(MountOptions options, std::span<const MountEntry> mounts);

/// Warnings about options that are legal but suspicious, a line each: a mountpoint that is not empty, tiers
/// larger than the `memory` or disk space that there is. `options` are settled.
std::vector<std::string> mount_warnings(const MountOptions& options, uint64_t memory);

}  // namespace clairfs
