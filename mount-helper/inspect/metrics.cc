// `clairfs metrics`: the figures of all mounts for Prometheus.
#include <chrono>
#include <memory>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/base/text_file.h"
#include "mount-helper/client/mount_list.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/inspect/joined_metrics.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kMetricsPatience = std::chrono::seconds(5);  // less than a scrape may take
constexpr mode_t kReadableByAll = 0644;  // a collector is another user, and no series names a file

struct MetricsArguments {
  std::string path;
  std::string output;
};

Result<std::vector<MountEntry>> mounts_to_ask(const std::string& path) {
  if (!path.empty()) {
    auto mount = clairfs_mount_of(path);
    if (!mount) return mount.error();
    return std::vector{std::move(*mount)};
  }
  const auto mounts = current_mounts();
  if (!mounts) return mounts.error();
  return clairfs_mounts(*mounts);
}

// Mounts that let this user in, dead ones included.
std::vector<CollectedMetrics> collect(const std::vector<MountEntry>& mounts) {
  std::vector<CollectedMetrics> all;
  for (const MountEntry& mount : mounts) {
    const auto text = read_with_deadline(mount.mountpoint + "/.clairfs/metrics", kMetricsPatience);
    if (!text && text.error().code == EACCES) continue;
    all.push_back({mount.mountpoint, mount.source, text.ok(), text ? *text : std::string()});
  }
  return all;
}

// A reader of the file sees the old one or the new one, whole.
Status replace_file(const std::string& file, const std::string& text) {
  const size_t slash = file.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  const std::string fresh = fmt::format("{}.{}.{}", file.substr(0, name), file.substr(name), ::getpid());
  Status written = write_text_file(fresh, text);
  if (written && ::chmod(fresh.c_str(), kReadableByAll) != 0) written = system_error(errno, "chmod " + fresh);
  if (written && ::rename(fresh.c_str(), file.c_str()) != 0)
    written = system_error(errno, fmt::format("rename {} to {}", fresh, file));
  if (!written) ::unlink(fresh.c_str());
  return written;
}

int metrics(const MetricsArguments& arguments) {
  const auto mounts = mounts_to_ask(arguments.path);
  if (!mounts) return fail(mounts.error());
  const std::string text = joined_metrics(collect(*mounts));
  if (arguments.output.empty()) return print_answer(text);
  const Status written = replace_file(arguments.output, text);
  return written ? exit_success : fail(written.error(), exit_system);
}

}  // namespace

void add_metrics_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("metrics", "Print the figures of all mounts for Prometheus");
  command->footer(
      "Example, each 15 seconds from a systemd timer, for node_exporter's textfile collector:\n"
      "  clairfs metrics --output /var/lib/node_exporter/textfile_collector/clairfs.prom");
  const auto arguments = std::make_shared<MetricsArguments>();
  command->add_option("MOUNTPOINT", arguments->path,
                      "Mountpoint, or any path inside the mount (default: all mounts)");
  command
      ->add_option("--output", arguments->output, "Write them to a file, which is replaced at once and whole")
      ->type_name("FILE");
  command->callback([arguments, &status] { status = metrics(*arguments); });
}

}  // namespace clairfs
