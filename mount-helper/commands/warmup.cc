#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>

#include <fmt/format.h>

#include "cache/base/plural.h"
#include "cache/base/units.h"
#include "mount-helper/client/control_client.h"
#include "mount-helper/client/kept.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/progress_bar.h"
#include "mount-helper/commands/read_through.h"
#include "mount-helper/log/stderr_line.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/resolve_path.h"

namespace clairfs {
namespace {

constexpr int kMostJobs = 1024;                             // more is a typing error
constexpr auto kSettlePatience = std::chrono::seconds(10);  // for chunks on their way to NVMe

// The paths to read: relative ones from the mount's root, else from here; none meaning all of `root`.
Result<std::vector<std::string>> resolve_paths(const std::string& root, const MountEntry& mount,
                                               const std::vector<std::string>& given) {
  if (given.empty()) return std::vector<std::string>{root};
  std::vector<std::string> paths;
  for (const std::string& path : given) {
    auto resolved = resolve_path(path.starts_with('/') ? path : mount.mountpoint + "/" + path);
    // As a shell completes it.
    if (const auto here = resolved ? resolved : resolve_path(path);
        !resolved && here && is_within(*here, mount.mountpoint))
      resolved = here;
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
  for (const std::string& line : outcome.first_errors) print_to_stderr(line);
  return fail(
      Error{EIO,
            fmt::format("{}{}", pluralize(outcome.errors, "error", "errors"),
                        outcome.errors > outcome.first_errors.size() ? ", the first of them above" : "")},
      exit_system);
}

// Says how much of what was read the tiers have now. Nothing to users who may not ask for it.
void report_kept(const ControlledMount& mount, const std::vector<std::string>& paths) {
  const auto kept = settled_residency(mount, paths, kSettlePatience);
  if (!kept) return;
  fmt::print("{}\n", kept_text(*kept));
  if (const std::string advice = tier_advice(*kept); !advice.empty()) print_to_stderr(advice);
}

int read_them(const std::string& mountpoint, const std::vector<std::string>& paths,
              const WarmupOptions& options) {
  const auto mount = find_controlled_mount(mountpoint);  // before there are threads
  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  const TimePoint start = clock.now();
  const WarmupOutcome outcome = warm_up(paths, options, [&](const TransferProgress& progress) {
    bar.show(transfer_text(progress, clock.now() - start));
  });
  const Duration elapsed = clock.now() - start;
  bar.show_end(transfer_text(outcome.done, elapsed));
  bar.clear();
  const int status = report(outcome, elapsed);
  if (mount) report_kept(*mount, paths);
  return status;
}

// `--check` and `--evict`.
int ask_about(const std::string& mountpoint, const std::vector<std::string>& paths, const char* command) {
  const auto mount = find_controlled_mount(mountpoint);
  if (!mount) return fail(mount.error());
  const auto answer = residency_of_paths(*mount, paths, command);
  if (!answer) return fail(answer.error());
  fmt::print("{}\n", kept_text(*answer));
  return finish_output();
}

enum class WarmupDeed { read, check, evict };

int warmup_command(const std::string& mountpoint, const std::vector<std::string>& given,
                   const WarmupOptions& options, WarmupDeed deed) {
  const auto mount = find_clairfs_mount(mountpoint);
  if (!mount) return fail(mount.error());
  const auto root = resolve_path(mountpoint);
  if (!root) return fail(root.error());
  const auto paths = resolve_paths(*root, *mount, given);
  if (!paths) return fail(paths.error());
  if (deed == WarmupDeed::read) return read_them(mountpoint, *paths, options);
  if (deed == WarmupDeed::check) return ask_about(mountpoint, *paths, "where");
  const int status = ask_about(mountpoint, *paths, "evict");
  if (status == exit_success) drop_pages(*paths);
  return status;
}

}  // namespace

void add_warmup_command(CLI::App& app, int& status) {
  CLI::App* command =
      app.add_subcommand("warmup", "Read files through the mount, to bring them into the cache");
  struct Arguments {
    std::string mountpoint;
    std::vector<std::string> paths;
    WarmupOptions options;
    bool check = false;
    bool evict = false;
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
  CLI::Option* check = command->add_flag(
      "--check", arguments->check, "Read nothing; say how much is here, in which tier, and on which node");
  command->add_flag("--evict", arguments->evict, "Drop the paths from the tiers and the page cache instead")
      ->excludes(check);
  command->callback([arguments, &status] {
    const WarmupDeed deed = arguments->check   ? WarmupDeed::check
                            : arguments->evict ? WarmupDeed::evict
                                               : WarmupDeed::read;
    status = warmup_command(arguments->mountpoint, arguments->paths, arguments->options, deed);
  });
}

}  // namespace clairfs
