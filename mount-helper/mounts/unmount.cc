#include "mount-helper/mounts/unmount.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mount.h>
#include <unistd.h>

#include "fs/base/mountinfo.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

// The daemon itself is in its mount while it pushes pages of files that the kernel does not know yet, or
// drops those of a cancelled plan: for more than half a second on a busy machine. While a plan runs, an
// attempt must find a moment between two files.
constexpr int kAttempts = 40;
constexpr int kMostAttempts = 5 * kAttempts;
constexpr auto kPause = std::chrono::milliseconds(50);

constexpr size_t kNamedUsers = 5;  // enough to act on, short enough for one line

// A mount below it; empty if there is none.
std::string mounted_inside(const std::string& mountpoint) {
  if (const auto mounts = current_mounts()) {
    for (const MountEntry& mount : *mounts) {
      if (mount.mountpoint != mountpoint && is_within(mount.mountpoint, mountpoint)) return mount.mountpoint;
    }
  }
  return "";
}

bool used_by_others(const std::string& mountpoint) {
  if (!mounted_inside(mountpoint).empty()) return true;
  const auto users = processes_using(mountpoint, kNamedUsers);
  return std::ranges::any_of(
      users, [](const std::string& user) { return user.find("clairfs") == std::string::npos; });
}

Error busy(const std::string& mountpoint, Unmounting how) {
  if (const std::string inside = mounted_inside(mountpoint); !inside.empty()) {
    return Error{EBUSY,
                 fmt::format("{} is busy: {} is mounted inside it; unmount that first", mountpoint, inside)};
  }
  const auto users = processes_using(mountpoint, kNamedUsers);
  const std::string by = users.empty() ? "" : fmt::format(": used by {}", fmt::join(users, ", "));
  if (how == Unmounting::of_silent_daemon) {
    return Error{EBUSY, fmt::format("{0} is busy{1}, and its daemon does not answer; detach it with: clairfs "
                                    "umount --lazy {0}",
                                    mountpoint, by)};
  }
  return Error{EBUSY,
               fmt::format("{} is busy{}; end what uses it, or detach it with: clairfs umount --lazy {}",
                           mountpoint, by, mountpoint)};
}

// Its daemon was faster. EINVAL alone does not tell: a namespace's inherited mounts cannot be unmounted
// either.
bool gone(const std::string& mountpoint) {
  const auto mounts = current_mounts();
  return mounts && !mount_at(*mounts, mountpoint);
}

Status unmount_unprivileged(const std::string& mountpoint, bool lazy) {
  const std::string fusermount = find_fusermount();
  if (fusermount.empty()) {
    return Error{EPERM,
                 fmt::format("unmounting {} needs root or fusermount3; install it with 'apt install fuse3'",
                             mountpoint)};
  }
  const Status done =
      lazy ? run_program({fusermount, "-u", "-z", mountpoint}) : run_program({fusermount, "-u", mountpoint});
  if (done) return done;
  if (done.error().message.find("busy") != std::string::npos)
    return system_error(EBUSY, "unmount " + mountpoint);
  if (gone(mountpoint)) return {};
  const auto mounts = current_mounts();
  if (!mounts) return done;
  const auto mount = mount_at(*mounts, mountpoint);
  if (!mount) return done;
  if (!mount->owner || *mount->owner == ::geteuid()) return done;
  return Error{EPERM, fmt::format("{} belongs to user {}; only that user and root may unmount it", mountpoint,
                                  *mount->owner)};
}

Status unmount_once(const std::string& mountpoint, bool lazy) {
  if (::umount2(mountpoint.c_str(), UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0) return {};
  const int code = errno;
  if (code == EPERM) return unmount_unprivileged(mountpoint, lazy);
  if (code == EINVAL && gone(mountpoint)) return {};
  return system_error(code, "unmount " + mountpoint);
}

}  // namespace

std::string find_fusermount() {
  const char* path_variable = std::getenv("PATH");
  std::istringstream places(std::string("/usr/bin:/bin:/usr/local/bin:") +
                            (path_variable != nullptr ? path_variable : ""));
  for (std::string place; std::getline(places, place, ':');) {
    const std::string path = place + "/fusermount3";
    if (place.starts_with('/') && ::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

Status unmount_patiently(const UnmountSteps& steps) {
  for (int attempt = 1;; ++attempt) {
    Status done = steps.once();
    if (done || done.error().code != EBUSY || attempt == kMostAttempts) return done;
    // Looking for its users takes long. A call that a daemon has taken and hangs in, our own look at it too,
    // keeps the mount busy and is in no process's list.
    if (attempt % kAttempts == 0 && (!steps.daemon_answers || steps.used_by_others())) return done;
    steps.pause();
  }
}

Status unmount(const std::string& mountpoint, Unmounting how) {
  Status done =
      unmount_patiently({[&] { return unmount_once(mountpoint, how == Unmounting::lazy); },
                         [&] { return used_by_others(mountpoint); },
                         [] { std::this_thread::sleep_for(kPause); }, how != Unmounting::of_silent_daemon});
  if (!done && done.error().code == EBUSY) return busy(mountpoint, how);
  return done;
}

}  // namespace clairfs
