// Defaults that depend on the machine: so that `clairfs mount SOURCE MOUNTPOINT` alone does the sensible
// thing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include <sys/types.h>

#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// The facts that defaults are computed from; tests make their own.
struct Machine {
  /// Content of a file of /proc or /sys, or nothing if it cannot be read.
  std::function<std::optional<std::string>(const std::string& path)> read_file;
  uid_t uid = 0;
  unsigned processors = 1;
  std::string xdg_cache_home;  ///< $XDG_CACHE_HOME or empty
  std::string home;            ///< $HOME, else the password database's, or empty
};

/// This machine, this process.
Machine this_machine();

/// Bytes that this process may still count on: MemAvailable, or the lowest memory limit of its cgroup and the
/// cgroups above (v2 memory.max, v1 memory.limit_in_bytes) where that is lower. 1 GiB when nothing can be
/// read.
uint64_t available_memory(const Machine& machine);

/// Every option at its default; source and mountpoint are empty, and catalog_dir for users without a home.
MountOptions default_options(const Machine& machine);

}  // namespace clairfs
