#include "mount-helper/guard.h"

#include <cerrno>
#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace clairfs {
namespace {

constexpr unsigned kUniqueMountId =
    0x4000;  // STATX_MNT_ID_UNIQUE, Linux 6.8; older C libraries do not name it

/// What tells one mount from the next at the same place, had without asking its daemon. Before Linux 6.8 both
/// numbers may be given out again.
struct MountIdentity {
  dev_t device = 0;
  uint64_t id = 0;
  friend bool operator==(const MountIdentity&, const MountIdentity&) = default;
};

MountIdentity identity_of(const std::string& mountpoint) {
  struct statx st {};
  if (::statx(AT_FDCWD, mountpoint.c_str(), AT_STATX_DONT_SYNC, kUniqueMountId, &st) != 0) return {};
  return {makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_mnt_id};
}

void wait_for_end_of(pid_t parent) {
  sigset_t all;
  sigfillset(&all);  // what is sent to every clairfs is meant for the daemon
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGUSR1);
  siginfo_t info{};
  while (::getppid() == parent) {
    // The kernel names the parent as the sender. Its other threads may live on, so that it stays the parent.
    if (::sigwaitinfo(&death, &info) == SIGUSR1 && info.si_pid == parent) return;
  }
}

Status abort_connection(const std::string& mountpoint, dev_t device) {
  // A descriptor makes the mount busy, so that it is aborted without being unmounted: its users find a dead
  // mount and not an empty directory.
  const Fd busy(::open(mountpoint.c_str(), O_PATH | O_CLOEXEC));
  if (!busy) return system_error(errno, "open " + mountpoint);
  if (::umount2(mountpoint.c_str(), MNT_FORCE | UMOUNT_NOFOLLOW) == 0 || errno == EBUSY) return {};
  const std::string path = fmt::format("/sys/fs/fuse/connections/{}/abort", minor(device));
  std::ofstream file(path);
  file << 1;
  if (file.flush()) return {};
  return Error{
      EPERM, fmt::format("cannot abort the mount {}: neither MNT_FORCE nor {} is allowed", mountpoint, path)};
}

}  // namespace

Status Guard::start(const std::string& mountpoint) {
  std::string program = "clairfs", command = "guard", place = mountpoint;
  std::string daemon = std::to_string(::getpid());
  char* arguments[] = {program.data(), command.data(), place.data(), daemon.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  // It must not hold open what others read to the end.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&files, fd, "/dev/null", O_RDWR, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  const int error = ::posix_spawn(&process_, "/proc/self/exe", &files, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&files);
  if (error == 0) return {};
  process_ = 0;
  return system_error(error, "start the guard of " + mountpoint);
}

void Guard::stop() {
  if (process_ == 0) return;
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
  process_ = 0;
}

Status guard_mount(const std::string& mountpoint, pid_t daemon) {
  const MountIdentity mount = identity_of(mountpoint);
  wait_for_end_of(daemon);
  if (identity_of(mountpoint) != mount) return {};
  return abort_connection(mountpoint, mount.device);
}

}  // namespace clairfs
