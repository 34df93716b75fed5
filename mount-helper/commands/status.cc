#include <memory>

#include <fmt/format.h>

#include "mount-helper/commands/commands.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kStatusPatience = std::chrono::seconds(10);  // a busy daemon answers within one

int status_command(const std::string& path, bool json) {
  if (path.empty()) return list_command(json);
  const auto mount = find_clairfs_mount(path);
  if (!mount) return fail(mount.error());
  const auto text = read_with_deadline(
      mount->mountpoint + (json ? "/.clairfs/stats.json" : "/.clairfs/status"), kStatusPatience);
  if (!text) return fail(text.error(), exit_system);
  return print_answer(*text);
}

}  // namespace

void add_status_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("status", "Show what the cache holds and did");
  struct Arguments {
    std::string path;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("MOUNTPOINT", arguments->path,
                      "Mountpoint, or any path inside the mount; without it all mounts are listed");
  command->add_flag("--json", arguments->json, "All counters as JSON");
  command->callback([arguments, &status] { status = status_command(arguments->path, arguments->json); });
}

}  // namespace clairfs
