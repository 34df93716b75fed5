#include "mount-helper/mounts/live_mount.h"

#include <cerrno>

#include <fmt/format.h>
#include <unistd.h>

#include "mount-helper/mounts/processes.h"
#include "mount-helper/mounts/resolve_path.h"

namespace clairfs {
namespace {

constexpr auto kProbePatience = std::chrono::seconds(10);  // a busy daemon answers within one

}  // namespace

Status check_answers(const std::string& path) {
  const int code = probe(path, kProbePatience);
  if (code == 0) return {};
  if (code == ENOTCONN) return stale_mount(path);
  return code == ETIMEDOUT ? silent_path(path) : system_error(code, path);
}

// The kernel keeps everybody else out of a FUSE mount, root too, before its daemon hears of it.
Status check_let_in(const MountEntry& mount) {
  if (!mount.owner || *mount.owner == ::geteuid()) return {};
  if (::access(mount.mountpoint.c_str(), F_OK) == 0 || errno != EACCES) return {};
  return Error{EACCES, fmt::format("{} is mounted by user {} without --allow-other; run this as that user",
                                   mount.mountpoint, *mount.owner)};
}

Result<MountEntry> clairfs_mount_of(const std::string& path) {
  const auto resolved = resolve_path(path);
  if (!resolved) return resolved.error();
  const auto mounts = current_mounts();
  if (!mounts) return mounts.error();
  const auto mount = mount_containing(*mounts, *resolved);
  if (!mount || !mount->is_clairfs()) {
    return Error{EINVAL, fmt::format("{} is not on a clairfs mount; 'clairfs list' lists them", path)};
  }
  return *mount;
}

Result<MountEntry> find_clairfs_mount(const std::string& path) {
  const auto mount = clairfs_mount_of(path);
  if (!mount) return mount.error();
  if (const Status answers = check_answers(mount->mountpoint); !answers) return answers.error();
  if (const Status let_in = check_let_in(*mount); !let_in) return let_in.error();
  return *mount;
}

}  // namespace clairfs
