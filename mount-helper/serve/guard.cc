#include "mount-helper/serve/guard.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/fd.h"
#include "cache/tasks/spawn.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr unsigned kUniqueMountId =
    0x4000;  // STATX_MNT_ID_UNIQUE, Linux 6.8; older C libraries do not name it
constexpr auto kAbortPatience = std::chrono::seconds(1);  // a few system calls

Fd open_mount(const std::string& mountpoint) {
  return Fd(::open(mountpoint.c_str(), O_PATH | O_CLOEXEC));
}

MountIdentity identity_of(const Fd& root) {
  struct statx st {};
  if (::statx(root.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, kUniqueMountId, &st) != 0) return {};
  return {makedev(st.stx_dev_major, st.stx_dev_minor), st.stx_mnt_id};
}

// Crashes. A handler knows nothing but what is global.

constexpr std::array kCrashes = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGQUIT};
std::atomic<pid_t> guard_of_this_process{0};
std::array<struct sigaction, kCrashes.size()> previous_actions;

// Only what is allowed in a signal handler.
void tell_guard(int number, siginfo_t* info, void* /*context*/) {
  if (const pid_t guard = guard_of_this_process; guard != 0) ::kill(guard, SIGUSR1);
  for (size_t i = 0; i < kCrashes.size(); ++i)
    if (kCrashes[i] == number) ::sigaction(number, &previous_actions[i], nullptr);
  // Once more, with what the kernel said of it: blocked until this returns, then for the previous action.
  ::syscall(SYS_rt_tgsigqueueinfo, ::getpid(), ::gettid(), number, info);
}

void watch_crashes() {
  struct sigaction tell {};
  tell.sa_sigaction = tell_guard;
  tell.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (size_t i = 0; i < kCrashes.size(); ++i) {
    ::sigaction(kCrashes[i], nullptr, &previous_actions[i]);
    // SIGQUIT is ignored by what a script starts in the background, and must stay so.
    if (previous_actions[i].sa_handler != SIG_IGN) ::sigaction(kCrashes[i], &tell, nullptr);
  }
}

void wait_for_end_of(pid_t parent) {
  ::prctl(PR_SET_NAME, "clairfs-guard");
  sigset_t all;
  sigfillset(&all);  // what is sent to every clairfs is meant for the daemon
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGUSR1);
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGUSR1);
  siginfo_t info{};
  // It may have ended before there was a signal to tell of it, and be the parent yet.
  while (!main_thread_ended(parent) && ::getppid() == parent) {
    // The kernel names the parent as the sender. Its other threads may live on, so that it stays the parent.
    if (::sigwaitinfo(&death, &info) == SIGUSR1 && info.si_pid == parent) return;
  }
}

// The file that aborts the mount's connection, and no later one that gets its number. None without fusectl.
Fd open_abort_file(const MountIdentity& mount) {
  const std::string path = fmt::format("/sys/fs/fuse/connections/{}/abort", minor(mount.device));
  return Fd(major(mount.device) == 0 ? ::open(path.c_str(), O_WRONLY | O_CLOEXEC) : -1);
}

// Its descriptor of the root makes the mount busy, so that it is aborted without being unmounted: its users
// find a dead mount and not an empty directory.
Status abort_at(const std::string& mountpoint, const MountIdentity& mount) {
  const Fd root = open_mount(mountpoint);
  if (!root || identity_of(root) != mount) return {};
  if (::umount2(fmt::format("/proc/self/fd/{}", root.get()).c_str(), MNT_FORCE) == 0 || errno == EBUSY)
    return {};
  return system_error(errno, "abort the mount " + mountpoint + " (fusectl is not mounted either)");
}

}  // namespace

Status Guard::start(const std::string& mountpoint) {
  const MountIdentity mount = identity_of(open_mount(mountpoint));
  const Result<pid_t> process =
      spawn({.program = "/proc/self/exe",
             .arguments = {"clairfs", "guard", mountpoint, std::to_string(mount.device),
                           std::to_string(mount.id), std::to_string(::getpid())},
             .new_session = true,
             .signals = Spawn::Signals::blocked});
  if (!process)
    return Error{process.error().code, fmt::format("guard of {}: {}", mountpoint, process.error().message)};
  process_ = *process;
  guard_of_this_process = *process;
  watch_crashes();
  return {};
}

void Guard::stop() {
  guard_of_this_process = 0;
  const pid_t process = process_.exchange(0);
  if (process == 0) return;
  ::kill(process, SIGKILL);
  ::waitpid(process, nullptr, 0);
}

void Guard::abort() {
  const pid_t process = process_;
  if (process == 0) return;
  ::kill(process, SIGUSR1);
  const auto deadline = std::chrono::steady_clock::now() + kAbortPatience;
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

Status guard_mount(const std::string& mountpoint, const MountIdentity& mount, pid_t daemon) {
  Fd abort_file;
  if (identity_of(open_mount(mountpoint)) == mount) abort_file = open_abort_file(mount);
  wait_for_end_of(daemon);
  if (abort_file && ::write(abort_file.get(), "1", 1) == 1) return {};
  return abort_at(mountpoint, mount);
}

}  // namespace clairfs
