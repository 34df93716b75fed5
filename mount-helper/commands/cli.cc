#include "mount-helper/commands/cli.h"

#include <iostream>

#include <fmt/format.h>
#include <getopt.h>

#include "mount-helper/commands/commands.h"
#include "mount-helper/options/option_table.h"

namespace clairfs {
namespace {

constexpr const char* kDescription =
    "clairfs mounts a read-only view of a dataset and caches it in memory and on NVMe.\n\n"
    "  clairfs mount /pfs/imagenet /mnt/imagenet     then train on /mnt/imagenet\n"
    "  clairfs plan /mnt/imagenet/train seed=42      what the script reads, in which order\n"
    "  clairfs status /mnt/imagenet                  what the cache did\n"
    "  clairfs umount /mnt/imagenet";

bool is_command(const CLI::App& app, const std::string& name) {
  return !app.get_subcommands([&](const CLI::App* command) { return command->check_name(name); }).empty();
}

/// What is wrong with the first argument when it is neither a command nor a flag of the program; else empty.
std::string unknown_argument(const CLI::App& app, const std::string& argument) {
  if (is_command(app, argument)) return "";
  if (!argument.starts_with('-')) return fmt::format("unknown command '{}'", argument);
  const auto flags = app.get_options([&](const CLI::Option* option) { return option->check_name(argument); });
  return flags.empty() ? fmt::format("unknown option '{}'", argument) : "";
}

int usage_error(const std::string& message) {
  fmt::print(stderr, "clairfs: {}\n", message);
  return exit_usage;
}

constexpr const char* kHelperUsage = "usage: mount.clairfs SOURCE MOUNTPOINT [-sfnv] [-o OPTIONS] [-t TYPE]";

/// "plan show ": the commands that were recognised.
std::string parsed_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    names += at->get_name() + " ";
  }
  return names;
}

/// CLI11 2.5 and later join the lines of descriptions and footers, which breaks the examples in them.
void keep_lines(auto& formatter) {
  if constexpr (requires { formatter.enable_description_formatting(false); }) {
    formatter.enable_description_formatting(false);
    formatter.enable_footer_formatting(false);
  }
}

}  // namespace

std::unique_ptr<CLI::App> make_app(int& status) {
  auto app = std::make_unique<CLI::App>(kDescription, "clairfs");
  keep_lines(*app->get_formatter());  // commands share it
  app->set_version_flag("--version", "clairfs " CLAIRFS_VERSION);
  app->require_subcommand(1);
  app->footer("'clairfs COMMAND --help' shows the options of a command; clairfs(1) is the manual.");
  add_mount_command(*app, status);
  add_umount_command(*app, status);
  add_status_command(*app, status);
  add_warmup_command(*app, status);
  add_plan_command(*app, status);
  add_index_command(*app, status);
  add_top_command(*app, status);
  add_simulate_command(*app, status);
  add_calibrate_command(*app, status);
  add_guard_command(*app, status);
  add_man_page_command(*app, status);
  add_completion_command(*app, status);
  return app;
}

int run_clairfs(int argc, char** argv) {
  int status = exit_success;
  const auto app = make_app(status);
  if (argc < 2) {
    std::cout << app->help();
    return exit_usage;
  }
  if (const std::string unknown = unknown_argument(*app, argv[1]); !unknown.empty()) {
    return usage_error(unknown + "; 'clairfs --help' lists the commands");
  }
  try {
    app->parse(argc, argv);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app->exit(wanted);
  } catch (const CLI::ParseError& failure) {
    return usage_error(fmt::format("{}; see 'clairfs {}--help'", failure.what(), parsed_commands(*app)));
  } catch (const std::exception& failure) {
    fmt::print(stderr, "clairfs: {}\n", failure.what());
    return exit_system;
  }
  return status;
}

int run_mount_helper(int argc, char** argv) {
  const std::string_view only = argc == 2 ? argv[1] : "";
  if (only == "--help" || only == "-h") {
    fmt::print("{}\n'man clairfs' tells of the options.\n", kHelperUsage);
    return finish_output();
  }
  if (only == "--version") {
    fmt::print("clairfs " CLAIRFS_VERSION "\n");
    return finish_output();
  }
  MountRequest request;
  std::string options;
  opterr = 0;
  for (int flag = 0; (flag = ::getopt(argc, argv, "sfnvo:t:")) != -1;) {
    switch (flag) {
      case 's':
        request.sloppy = true;
        break;
      case 'f':
        request.fake = true;
        break;
      case 'v':
        request.verbose = true;
        break;
      case 'o':
        options += (options.empty() ? "" : ",") + std::string(optarg);
        break;
      case 'n':  // no entry in /etc/mtab, which there is no more
      case 't':  // the type that brought mount(8) here
        break;
      default:
        return usage_error(kHelperUsage);
    }
  }
  if (argc - optind != 2) return usage_error(kHelperUsage);
  request.source = argv[optind];
  request.mountpoint = argv[optind + 1];
  request.option_list = options;
  try {
    return mount_command(request);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "clairfs: {}\n", failure.what());
    return exit_system;
  }
}

}  // namespace clairfs
