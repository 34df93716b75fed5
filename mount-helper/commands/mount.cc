#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/units.h"
#include "cache/nvme/directory.h"
#include "fs/base/mountinfo.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/commands/progress_bar.h"
#include "mount-helper/log/logging.h"
#include "mount-helper/log/stderr_line.h"
#include "mount-helper/options/defaults.h"
#include "mount-helper/options/option_table.h"
#include "mount-helper/options/permissions.h"
#include "mount-helper/options/validate.h"
#include "mount-helper/serve/background.h"
#include "mount-helper/serve/daemon.h"
#include "mount-helper/serve/job_node.h"
#include "mount-helper/serve/job_place.h"
#include "mount-helper/serve/signals.h"

namespace clairfs {
namespace {

// serve(), with the mount point claimed until the mount is there for all to see.
Serve serve_claimed(Fd claim) {
  return [held = std::make_shared<Fd>(std::move(claim))](const MountOptions& options, Logger& log,
                                                         const ServeEvents& events) {
    ServeEvents with = events;
    with.ready = [&](Status status) {
      held->reset();
      events.ready(std::move(status));
    };
    return serve(options, log, with);
  };
}

// fail() where stderr takes the line. Else the exit status tells: nobody waits for who does not read.
int fail_in_time(const Error& error, int status) {
  return stderr_takes_a_line() ? fail(error, status) : status;
}

// Says why there is no mount; to the other nodes of its job, too, which takes until these have come.
int refuse_mount(MountOptions options, const JobPlace& place, const Error& error,
                 int status = exit_mount_failure) {
  fail_in_time(error, status);
  if (place.size == 1 || !options.peers) return status;
  // A log file may be the very thing that this node has not.
  options.foreground = true;
  options.log_file.clear();
  const auto log = make_logger(options);  // never destroyed: MPI's threads may log to it until the end
  if (log) {
    name_node_in_log(**log, place.self.value);
    start_log(**log);
    decline_job(options, place, error.message, **log);
    (*log)->flush();
  }
  std::fflush(nullptr);
  std::_Exit(status);  // as serve() ends: MPI leaves threads behind
}

// The same for a node whose options are wrong: only what its launcher says of the job is known then.
int refuse_options(const MountRequest& request, const Error& error) {
  const MountOptions options = default_options(this_machine());
  const auto place = place_of(options);
  return request.fake || !place ? fail_in_time(error, exit_usage)
                                : refuse_mount(options, *place, error, exit_usage);
}

// The tier is opened after the scan only, which may take long.
Status check_nvme_directories(const MountOptions& options) {
  for (const NvmeDir& nvme : options.nvme) {
    if (Status fit = check_nvme_directory(nvme.directory); !fit) return fit;
  }
  return {};
}

int mount_in_foreground(const MountOptions& options, const JobPlace& place, const Serve& served) {
  const auto log = make_logger(options);
  if (!log) return refuse_mount(options, place, log.error());
  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  int failed = exit_success;
  ServeEvents events;
  events.progress = [&](const std::string& text) { bar.show(text); };
  events.ready = [&](const Status& status) {
    bar.clear();
    if (status) return;
    failed = exit_mount_failure;
    const std::string why = "not mounted: " + status.error().message;
    if (stderr_takes_a_line()) {
      log_error_to_file(**log, why);
      fail(status.error(), failed);
    } else {
      (*log)->error("{}", why);
    }
  };
  const int status = serve_guarded(served, options, **log, events);
  return failed != exit_success ? failed : status;
}

int mount_in_background(const MountOptions& options, const Serve& served, bool verbose) {
  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  const Status started =
      start_in_background(options, served, [&](const std::string& text) { bar.show(text); });
  bar.clear();
  if (!started) return fail_in_time(started.error(), exit_mount_failure);
  if (!verbose) return exit_success;
  fmt::print("clairfs: mounted {} on {}\n", options.source, options.mountpoint);
  for (const NvmeDir& nvme : options.nvme)
    fmt::print("clairfs: NVMe tier: {} in {}\n", format_size(nvme.capacity), nvme.directory);
  return exit_success;
}

// With what neither the command line nor -o says.
MountRequest with_surroundings(MountRequest request) {
  request.environment = values_of_environment(environ);
  if (::access(kSystemConfig, F_OK) == 0) request.system_config = kSystemConfig;
  return request;
}

}  // namespace

Result<MountOptions> gather_options(const MountRequest& request, const MountOptions& defaults) {
  MountOptions options = defaults;
  options.source = request.source;
  options.mountpoint = request.mountpoint;
  options.foreground = request.foreground;
  const auto listed = parse_mount_option_list(request.option_list, request.sloppy);
  if (!listed) return listed.error();
  OptionValues values = merge(merge(request.environment, *listed), request.flags);
  const auto named = values.find("config");
  const std::string config = named != values.end() ? named->second.back().text : request.system_config;
  if (!config.empty()) {
    const auto read = read_config(config);
    if (!read) {
      std::string why = read.error().message;
      if (constexpr std::string_view kTried = "open "; why.starts_with(kTried)) why.erase(0, kTried.size());
      return Error{read.error().code, "config file " + why};
    }
    values = merge(*read, values);
  }
  if (const Status applied = apply_values(values, options); !applied) return applied.error();
  return options;
}

Result<MountOptions> standing_options() {
  return gather_options(with_surroundings({}), default_options(this_machine()));
}

int mount_command(const MountRequest& request) {
  ignore_warnings();
  const MountRequest completed = with_surroundings(request);
  const auto gathered = gather_options(completed, default_options(this_machine()));
  if (!gathered) return refuse_options(completed, gathered.error());
  const auto place = place_of(*gathered);
  if (!place) return fail_in_time(place.error(), exit_usage);
  const auto placed = options_for_node(*gathered, *place);
  if (!placed) return fail_in_time(placed.error(), exit_usage);
  const auto refuse = [&](const Error& error) {
    return request.fake ? fail_in_time(error, exit_mount_failure) : refuse_mount(*placed, *place, error);
  };
  auto claim = request.fake ? Fd() : claim_mount_point(placed->mountpoint, place->size > 1);
  if (!claim) return refuse(claim.error());
  const auto mounts = current_mounts();
  if (!mounts) return fail_in_time(mounts.error(), exit_system);
  const auto options = resolve_paths(*placed, *mounts);
  if (!options) return refuse(options.error());
  const Status permitted = check_permissions(*options, gather_fuse_facts(options->mountpoint));
  if (!permitted) return refuse(permitted.error());
  if (const Status fit = check_nvme_directories(*options); !fit) return refuse(fit.error());
  if (request.fake) {
    if (const Status log = check_log_file(*options); !log) return refuse(log.error());
    for (const std::string& doubt : mount_warnings(*options, available_memory(this_machine())))
      print_to_stderr("warning: " + doubt);
    return exit_success;
  }
  ::umask(077);  // what it makes names files that others may not see
  const Serve served = serve_claimed(std::move(*claim));
  return options->foreground ? mount_in_foreground(*options, *place, served)
                             : mount_in_background(*options, served, request.verbose);
}

void add_mount_command(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand("mount", "Mount a dataset");
  struct Arguments {
    MountRequest request;
    std::vector<std::string> lists;
  };
  const auto arguments = std::make_shared<Arguments>();
  MountRequest& request = arguments->request;
  command
      ->add_option("SOURCE", request.source, "Directory of the dataset, for example on a parallel filesystem")
      ->required();
  command->add_option("MOUNTPOINT", request.mountpoint, "Existing directory where it is to appear")
      ->required();
  command->add_flag("-f,--foreground", request.foreground, "Stay in the foreground and log to stderr");
  command->add_flag("-v,--verbose", request.verbose, "Say what was mounted");
  command->add_flag("--dry-run", request.fake,
                    "Check everything that can be known before the scan, mount nothing");
  command->add_option("-o", arguments->lists, "Options as mount(8) takes them: ram=2G,allow_other")
      ->type_name("OPTIONS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option_flags(*command);
  command->footer(
      "A SIZE is written as 4096, 512M or 20GiB, in powers of 1024. Unless -f is given, the command returns "
      "when the mount is "
      "usable.");
  command->callback([command, arguments, &status] {
    arguments->request.flags = collected_flags(*command);
    arguments->request.option_list = fmt::format("{}", fmt::join(arguments->lists, ","));
    status = mount_command(arguments->request);
  });
}

}  // namespace clairfs
