#include "mount-helper/serve/guard.h"

#include <memory>

#include "mount-helper/commands/commands.h"

namespace clairfs {

void add_guard_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("guard", "End the mount of a daemon that was killed");
  command->group("");  // hidden
  struct Arguments {
    std::string mountpoint;
    MountIdentity mount;
    pid_t daemon = 0;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("MOUNTPOINT", arguments->mountpoint)->required();
  command->add_option("DEVICE", arguments->mount.device)->required();
  command->add_option("MOUNT_ID", arguments->mount.id)->required();
  command->add_option("DAEMON", arguments->daemon, "The parent process")->required();
  command->callback([arguments, &status] {
    const Status done = guard_mount(arguments->mountpoint, arguments->mount, arguments->daemon);
    status = done ? static_cast<int>(exit_success) : fail(done.error(), exit_system);
  });
}

}  // namespace clairfs
