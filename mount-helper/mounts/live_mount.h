// Finding clairfs mounts whose daemon answers, and telling those whose daemon is gone or hangs.
#pragma once

#include <chrono>
#include <string>

#include "cache/base/result.h"
#include "fs/base/mountinfo.h"

namespace clairfs {

/// Whether the filesystem at `path`, as resolve_path() gives it, answers. Errors: stale_mount();
/// silent_path() after ten seconds; those of statvfs(3). REQUIRES: this process has one thread (see
/// probe()).
Status check_answers(const std::string& path);

/// Whether this user may enter a mount, whose daemon answers. Errors: EACCES, naming whose it is.
Status check_let_in(const MountEntry& mount);

/// The clairfs mount that holds `path` (the mountpoint or anything below), whether or not its daemon answers.
/// Errors, one line each: EINVAL for what is on no clairfs mount; those of realpath(3).
Result<MountEntry> clairfs_mount_of(const std::string& path);

/// The same, but its daemon must answer and let this user in. Errors: those of clairfs_mount_of() and
/// check_answers(); EACCES. REQUIRES: this process has one thread.
Result<MountEntry> find_clairfs_mount(const std::string& path);

}  // namespace clairfs
