// The kernel's list of mounts, and which of them are ours.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "cache/base/result.h"

namespace clairfs {

/// One line of /proc/self/mountinfo; see proc(5). Paths have their octal escapes undone.
struct MountEntry {
  std::string mountpoint;
  std::string type;                           ///< "ext4", "fuse.clairfs"
  std::string source;                         ///< for clairfs mounts the dataset's path
  std::optional<uid_t> owner = std::nullopt;  ///< of a FUSE mount: who mounted
  std::optional<gid_t> group = std::nullopt;  ///< and as which group
  std::string device = {};                    ///< "0:52": the same wherever this filesystem is mounted
  std::string root = "/";                     ///< the folder of the filesystem that is mounted there

  bool is_clairfs() const { return type == "fuse.clairfs"; }
};

/// Lines that do not look as they should are left out. Later entries lie over earlier ones.
std::vector<MountEntry> parse_mountinfo(std::string_view text);
/// The mounts that this process sees. Errors: as read_text_file().
Result<std::vector<MountEntry>> current_mounts();

/// The clairfs mounts that can be asked for control files, each filesystem once: bind mounts of it are left
/// out, and mounts that another one lies over.
std::vector<MountEntry> clairfs_mounts(std::span<const MountEntry> mounts);

/// The topmost mount exactly at `path`, and the one that holds `path`. `path` is absolute and without "." or
/// "..".
std::optional<MountEntry> mount_at(std::span<const MountEntry> mounts, std::string_view path);
std::optional<MountEntry> mount_containing(std::span<const MountEntry> mounts, std::string_view path);

/// Whether `path` is `directory` or lies below it. Both absolute and resolved.
bool is_within(std::string_view path, std::string_view directory);

}  // namespace clairfs
