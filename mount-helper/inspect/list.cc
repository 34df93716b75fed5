#include <memory>

#include "mount-helper/client/mount_list.h"
#include "mount-helper/commands/commands.h"

namespace clairfs {

int list_command(bool json) {
  const auto mounts = list_mounts();
  if (!mounts) return fail(mounts.error());
  return print_answer(json ? mount_list_json(*mounts) : mount_table(*mounts));
}

void add_list_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("list", "List the clairfs mounts of this machine, and how they are");
  const auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "As JSON");
  command->callback([json, &status] { status = list_command(*json); });
}

}  // namespace clairfs
