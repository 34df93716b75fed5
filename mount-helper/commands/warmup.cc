#include <cerrno>
#include <memory>

#include <fmt/format.h>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/progress_bar.h"
#include "mount-helper/commands/read_through.h"
#include "mount-helper/mounts/live_mount.h"

namespace clairfs {
namespace {

constexpr int kMostJobs = 1024;  // more is a typing error

/// The paths to read: relative ones from the mount's root, none meaning all of `root`.
Result<std::vector<std::string>> resolve_paths(const std::string& root, const MountEntry& mount,
                                               const std::vector<std::string>& given) {
  if (given.empty()) return std::vector<std::string>{root};
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    const auto resolved = resolve_path(path.starts_with('/') ? path : mount.mountpoint + "/" + path);
    if (!resolved) return resolved.error();
    if (!is_within(*resolved, mount.mountpoint)) {
      return Error{EINVAL, fmt::format("{} is not below the mount {}", *resolved, mount.mountpoint)};
    }
    paths.push_back(*resolved);
  }
  return paths;
}

int report(const WarmupOutcome& outcome, Duration elapsed) {
  const double seconds = std::max(1e-6, std::chrono::duration<double>(elapsed).count());
  fmt::print("read {} of {}, {} in {} ({}/s)\n", outcome.done.files,
             pluralize(outcome.done.total_files, "file", "files"), format_size(outcome.done.bytes),
             format_duration(elapsed),
             format_size(static_cast<uint64_t>(static_cast<double>(outcome.done.bytes) / seconds)));
  if (outcome.errors == 0) return exit_success;
  for (const std::string& line : outcome.first_errors) fmt::print(stderr, "clairfs: {}\n", line);
  return fail(
      Error{EIO,
            fmt::format("{}{}", pluralize(outcome.errors, "error", "errors"),
                        outcome.errors > outcome.first_errors.size() ? ", the first of them above" : "")},
      exit_system);
}

int warmup_command(const std::string& mountpoint, const std::vector<std::string>& given,
                   const WarmupOptions& options) {
  const auto mount = find_clairfs_mount(mountpoint);
  if (!mount) return fail(mount.error(), exit_usage);
  const auto root = resolve_path(mountpoint);
  if (!root) return fail(root.error(), exit_usage);
  const auto paths = resolve_paths(*root, *mount, given);
  if (!paths) return fail(paths.error(), exit_usage);

  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  const TimePoint start = clock.now();
  const WarmupOutcome outcome = warm_up(*paths, options, [&](const TransferProgress& progress) {
    bar.show(transfer_text(progress, clock.now() - start));
  });
  bar.clear();
  return report(outcome, clock.now() - start);
}

}  // namespace

void add_warmup_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("warmup", "Read files through the mount, to bring them into the cache");
  struct Arguments {
    std::string mountpoint;
    std::vector<std::string> paths;
    WarmupOptions options;
  };
  const auto arguments = std::make_shared<Arguments>();
  command->add_option("MOUNTPOINT", arguments->mountpoint, "Where the dataset is mounted")->required();
  command->add_option("PATH", arguments->paths,
                      "Files and directories, relative to the mountpoint (default: all)");
  command->add_option("-j,--jobs", arguments->options.jobs, "Files read at once (default: 8)")
      ->type_name("NUMBER")
      ->check(CLI::Range(1, kMostJobs));
  command->add_flag("--keep-page-cache", arguments->options.keep_page_cache,
                    "Leave what was read in the page cache as well");
  command->callback([arguments, &status] {
    status = warmup_command(arguments->mountpoint, arguments->paths, arguments->options);
  });
}

}  // namespace clairfs
