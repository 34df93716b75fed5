// The commands, one file each. add_X_command() declares arguments; parsing them runs the command and leaves
// its exit status in `status`, which must outlive `app`. Errors go to stderr as one line "clairfs: ...".
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "mount-helper/options/exit_status.h"
#include "mount-helper/options/mount_options.h"
#include "mount-helper/options/option_sources.h"

namespace clairfs {

void add_mount_command(CLI::App& app, int& status);
void add_umount_command(CLI::App& app, int& status);
void add_status_command(CLI::App& app, int& status);
// Of mount-helper/inspect:
void add_list_command(CLI::App& app, int& status);
void add_wait_command(CLI::App& app, int& status);
void add_doctor_command(CLI::App& app, int& status);
void add_bench_command(CLI::App& app, int& status);
void add_cache_command(CLI::App& app, int& status);
void add_metrics_command(CLI::App& app, int& status);

void add_warmup_command(CLI::App& app, int& status);
void add_plan_command(CLI::App& app, int& status);
void add_index_command(CLI::App& app, int& status);
void add_simulate_command(CLI::App& app, int& status);
void add_calibrate_command(CLI::App& app, int& status);
void add_top_command(CLI::App& app, int& status);
/// Hidden; every mount starts it.
void add_guard_command(CLI::App& app, int& status);
/// Hidden; the build makes the man pages with it.
void add_man_page_command(CLI::App& app, int& status);
/// Hidden; the build makes the completions of shells with it, of all commands that `app` has then.
void add_completion_command(CLI::App& app, int& status);

/// `clairfs list`, and `clairfs status` without a path.
int list_command(bool json);

/// The options and paths as given, before defaults and checks.
struct MountRequest {
  std::string source;
  std::string mountpoint;
  OptionValues flags;       ///< of the command line
  std::string option_list;  ///< of -o
  OptionValues environment;
  std::string system_config;  ///< read where no config file is named; empty: there is none
  bool foreground = false;
  bool fake = false;     ///< check everything, mount nothing
  bool sloppy = false;   ///< leave unknown -o options out
  bool verbose = false;  ///< say what was done
};

/// Defaults, then the config file, then the environment, then -o, then flags; paths are left as given.
/// Errors: EINVAL, origin first.
Result<MountOptions> gather_options(const MountRequest& request, const MountOptions& defaults);

/// The options of a mount that is given none: this machine's defaults, the config file, the environment.
/// Errors: as above.
Result<MountOptions> standing_options();

/// Mounts: returns when the mount is usable, or, in the foreground, when it has ended.
int mount_command(const MountRequest& request);

/// Whether a file that a command writes at its end can be written, as far as that shows before its work;
/// empty: none. Errors: those of creating it; ETIMEDOUT. REQUIRES: this process has one thread.
Status check_output(const std::string& file);
/// The same of --plot. The picture is SVG: under another picture's name nothing would show it. Errors:
/// EINVAL.
Status check_plot(const std::string& file);

/// Prints "clairfs: MESSAGE" to stderr, on one line that cannot steer a terminal, and returns `status`.
int fail(const Error& error, int status);
/// The same with exit_usage for what the user can have got wrong, else exit_system.
int fail(const Error& error);

/// The exit status of a command that has printed its answer to stdout, and is done if that took everything.
int finish_output();

/// Prints the answer of a mount, which any user may have made, and ends as finish_output() does.
int print_answer(std::string_view text);

/// The log of a command without a daemon: warnings and errors, to stderr.
Logger stderr_logger();

}  // namespace clairfs
