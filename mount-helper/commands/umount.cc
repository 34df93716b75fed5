#include <cerrno>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <grp.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "fs/base/mountinfo.h"
#include "fs/base/text_file.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/mounts/resolve_path.h"
#include "mount-helper/mounts/unmount.h"
#include "mount-helper/serve/mount_point.h"

namespace clairfs {
namespace {

constexpr auto kAlivePatience = std::chrono::seconds(3);  // a daemon that lives answers at once
constexpr auto kQuickEnd = std::chrono::seconds(1);       // then it is time to look for a reason
// An orderly end takes milliseconds, or seconds where indexes are saved or a job is left. By then a daemon
// has ended itself by force.
constexpr auto kUnmountPatience = kShutDownPatience + std::chrono::seconds(5);
constexpr size_t kNamedNamespaces = 3;  // enough to act on, short enough for one line

// The topmost mount at `path`, which must be ours.
Result<MountEntry> mount_to_end(const std::string& path) {
  const auto resolved = resolve_path(path);
  if (!resolved) return resolved.error();
  const auto mounts = current_mounts();
  if (!mounts) return mounts.error();
  const auto mount = mount_at(*mounts, *resolved);
  if (mount && mount->is_clairfs()) return *mount;
  if (mount) {
    return Error{EINVAL, fmt::format("{} is a mount of type {}, not clairfs; 'clairfs list' lists clairfs "
                                     "mounts",
                                     *resolved, mount->type)};
  }
  const auto around = mount_containing(*mounts, *resolved);
  if (around && around->is_clairfs()) {
    return Error{EINVAL,
                 fmt::format("{} lies inside the clairfs mount {}; unmount that with: clairfs umount {}",
                             *resolved, around->mountpoint, around->mountpoint)};
  }
  return Error{EINVAL, fmt::format("{} is not mounted; 'clairfs list' lists clairfs mounts", *resolved)};
}

// This process becomes who mounted: without --allow-other the kernel lets nobody else in, root neither.
bool become_owner(const MountEntry& mount) {
  if (::geteuid() != 0 || !mount.owner || !mount.group) return false;
  return ::setgroups(0, nullptr) == 0 && ::setresgid(*mount.group, *mount.group, *mount.group) == 0 &&
         ::setresuid(*mount.owner, *mount.owner, *mount.owner) == 0;
}

// The daemon behind the mount; none when it is gone, or lives in another pid namespace. Errors: ETIMEDOUT
// when it does not answer.
Result<Fd> find_daemon(const MountEntry& mount, pid_t& pid) {
  const std::string path = mount.mountpoint + "/.clairfs/stats.json";
  const auto stats = with_deadline(path, kAlivePatience, [&] {
    auto text = read_text_file(path);
    if (!text && text.error().code == EACCES && become_owner(mount)) text = read_text_file(path);
    return text;
  });
  if (!stats && stats.error().code == ETIMEDOUT) return stats.error();
  if (!stats) return Fd();
  const auto parsed = nlohmann::json::parse(*stats, nullptr, false);
  const auto number = nlohmann::json::json_pointer("/daemon/pid");
  if (parsed.is_discarded() || !parsed.contains(number) || !parsed[number].is_number_integer()) return Fd();
  pid = parsed[number].get<pid_t>();
  if (pid <= 0 || process_name(pid).find("clairfs") == std::string::npos) return Fd();
  return open_process(pid);
}

// Waits for the daemon of what is unmounted here. `before`: who else had it before that. Errors, one line
// each: why it goes on.
Status await_end(const MountEntry& mount, const std::vector<NamespaceUser>& before, const Fd& daemon,
                 pid_t pid) {
  if (wait_for_end(daemon, kQuickEnd)) return {};
  const auto others = still_with(before, namespaces_with(mount.device), kNamedNamespaces);
  if (!others.empty()) {
    return Error{EBUSY,
                 fmt::format("{0} is unmounted here, but {1} still has it, in a mount namespace of its "
                             "own (a container?), so its daemon goes on; to end that: kill {2}",
                             mount.mountpoint, fmt::join(others, ", "), pid)};
  }
  if (wait_for_end(daemon, kUnmountPatience - kQuickEnd)) return {};
  return Error{
      ETIMEDOUT,
      fmt::format("{} is unmounted, but its daemon (process {}) still runs after {} seconds; its log "
                  "may say why",
                  mount.mountpoint, pid, kUnmountPatience.count())};
}

int umount_command(const std::string& path, bool lazy) {
  const auto mount = mount_to_end(path);
  if (!mount) return fail(mount.error(), exit_usage);
  pid_t pid = 0;
  const auto daemon = lazy ? Result<Fd>(Fd()) : find_daemon(*mount, pid);
  const auto others = lazy ? std::vector<NamespaceUser>() : namespaces_with(mount->device);
  const Unmounting how = lazy      ? Unmounting::lazy
                         : !daemon ? Unmounting::of_silent_daemon
                                   : Unmounting::orderly;
  if (const Status done = unmount(mount->mountpoint, how); !done)
    return fail(done.error(), exit_mount_failure);
  if (!daemon) {
    return fail(
        Error{ETIMEDOUT, fmt::format("{} is unmounted, but its daemon did not answer and may still run; "
                                     "'pgrep -a clairfs' lists the daemons",
                                     mount->mountpoint)},
        exit_system);
  }
  if (lazy) return exit_success;
  const Status ended = await_end(*mount, others, *daemon, pid);
  return ended ? exit_success : fail(ended.error(), exit_system);
}

}  // namespace

void add_umount_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("umount", "Unmount, also what a dead daemon left behind");
  struct Arguments {
    std::string mountpoint;
    bool lazy = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("MOUNTPOINT", arguments->mountpoint, "Where the dataset is mounted")->required();
  command->add_flag("-z,-l,--lazy", arguments->lazy,
                    "Detach at once even if in use; the daemon ends with the last user");
  command->callback(
      [arguments, &status] { status = umount_command(arguments->mountpoint, arguments->lazy); });
}

}  // namespace clairfs
