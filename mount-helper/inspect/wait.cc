// `clairfs wait`: for scripts that start a mount in the background, as jobs do.
#include <cerrno>
#include <chrono>
#include <memory>
#include <thread>

#include <fmt/format.h>

#include "fs/base/mountinfo.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/mounts/resolve_path.h"

namespace clairfs {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);
constexpr auto kProbePatience = std::chrono::seconds(1);  // nodes of a job are mounted before they answer
constexpr double kMostTimeout = 24 * 60 * 60;             // more is a typing error
constexpr double kDefaultTimeout = 600;                   // a scan of 10^7 files on a slow filesystem
constexpr int kMostPid = 1 << 22;                         // no kernel has larger ones

struct WaitArguments {
  std::string path;
  double timeout = kDefaultTimeout;
  int pid = 0;
};

// Whether a clairfs answers there; else what it looks like. EPERM: one that this user may not enter.
Status mount_answers(const std::string& path) {
  const auto resolved = resolve_path(path);
  if (!resolved) return resolved.error();
  const auto mounts = current_mounts();
  if (!mounts) return mounts.error();
  const auto mount = mount_containing(*mounts, *resolved);
  if (!mount || !mount->is_clairfs()) return Error{ENOENT, fmt::format("{} is not mounted yet", path)};
  const int code = probe(mount->mountpoint, kProbePatience);
  if (code == 0) {
    const Status let_in = check_let_in(*mount);
    return let_in ? let_in : Error{EPERM, let_in.error().message};
  }
  if (code == ENOTCONN) return stale_mount(mount->mountpoint);
  if (code == ETIMEDOUT) return Error{code, fmt::format("{} is mounted and does not answer yet", path)};
  return system_error(code, path);
}

int wait_for_mount(const WaitArguments& arguments) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.timeout);
  const Fd process = arguments.pid != 0 ? open_process(arguments.pid) : Fd();
  for (;;) {
    const bool ended =
        arguments.pid != 0 && (!process || wait_for_end(process, std::chrono::milliseconds(0)));
    const Status answers = mount_answers(arguments.path);
    if (answers) return exit_success;
    if (answers.error().code == EPERM) return fail(answers.error(), exit_system);
    if (ended) {
      return fail(
          Error{ESRCH, fmt::format("{}, and process {} has ended", answers.error().message, arguments.pid)},
          exit_system);
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return fail(Error{ETIMEDOUT,
                        fmt::format("{}; gave up after {:g} s", answers.error().message, arguments.timeout)},
                  exit_system);
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

void add_wait_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("wait", "Wait until a mount is usable");
  command->footer(
      "Exit status: 0 usable, 2 not within the time, not for this user, or the process has ended.\n"
      "Example: srun clairfs mount -f SOURCE MOUNTPOINT & clairfs wait MOUNTPOINT --pid $!");
  const auto arguments = std::make_shared<WaitArguments>();
  command->add_option("MOUNTPOINT", arguments->path, "Where it is to appear")->required();
  command->add_option("--timeout", arguments->timeout, "Seconds to wait at most (default: 600)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, kMostTimeout));
  command->add_option("--pid", arguments->pid, "Give up when this process ends, which is to mount it")
      ->type_name("NUMBER")
      ->check(CLI::Range(1, kMostPid));
  command->callback([arguments, &status] { status = wait_for_mount(*arguments); });
}

}  // namespace clairfs
