// clairfs mount: in the background, a child serves and the parent waits for its word.
//
// The child is forked before there is any thread. It reports through a pipe (see readiness.h); its end,
// however it comes, closes the pipe, so the parent's wait always ends. A signal to the waiting parent ends
// the child too.
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mount-helper/commands/commands.h"
#include "mount-helper/daemon.h"
#include "mount-helper/defaults.h"
#include "mount-helper/logging.h"
#include "mount-helper/option_table.h"
#include "mount-helper/permissions.h"
#include "mount-helper/processes.h"
#include "mount-helper/progress_bar.h"
#include "mount-helper/readiness.h"
#include "mount-helper/signals.h"
#include "mount-helper/unmount.h"
#include "mount-helper/validate.h"

namespace clairfs {
namespace {

constexpr auto kEndPatience = std::chrono::seconds(10);  // an orderly end takes milliseconds

int serve_guarded(const MountOptions& options, Logger& log, const ServeEvents& events) {
  try {
    return serve(options, log, events);
  } catch (const std::exception& failure) {
    log.error("ended: {}", failure.what());
    events.ready(Error{EIO, failure.what()});
    return exit_system;
  }
}

/// ServeEvents promises one call of ready; an exception after it must not make a second.
std::function<void(Status)> once(std::function<void(Status)> ready) {
  return [ready = std::move(ready), called = false](Status status) mutable {
    if (!std::exchange(called, true)) ready(std::move(status));
  };
}

void to_null(int fd) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) ::dup2(null.get(), fd);
}

int mount_in_foreground(const MountOptions& options) {
  const auto log = make_logger(options);
  if (!log) return fail(log.error(), exit_mount_failure);
  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  int failed = exit_success;
  ServeEvents events;
  events.progress = [&](const std::string& text) { bar.show(text); };
  events.ready = once([&](const Status& status) {
    bar.clear();
    if (!status) failed = fail(status.error(), exit_mount_failure);
  });
  const int status = serve_guarded(options, **log, events);
  return failed != exit_success ? failed : status;
}

int run_daemon(const MountOptions& options, ReadinessWriter writer) {
  ::setsid();
  if (::chdir("/") != 0) return exit_system;
  to_null(STDIN_FILENO);
  const auto log = make_logger(options);
  if (!log) {
    writer.finish(log.error());
    return exit_mount_failure;
  }
  ServeEvents events;
  events.progress = [&](const std::string& text) { writer.progress(text); };
  events.ready = once([&](const Status& status) {
    if (status) {  // before the word is out: who reads our output waits for its end
      to_null(STDOUT_FILENO);
      to_null(STDERR_FILENO);
    } else {
      (*log)->error("not mounted: {}", status.error().message);
    }
    writer.finish(status);
  });
  return serve_guarded(options, **log, events);
}

std::string how_it_ended(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, WNOHANG) != child) return "it still runs";
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

/// Ends a daemon that is not wanted any more, and what it may have mounted.
void end_daemon(pid_t child, const Fd& process, const std::string& mountpoint) {
  ::kill(child, SIGTERM);
  if (wait_for_end(process, kEndPatience)) return;
  ::kill(child, SIGKILL);
  wait_for_end(process, kEndPatience);
  if (!is_stale(mountpoint)) return;
  if (const Status cleared = unmount(mountpoint, true); !cleared) fail(cleared.error(), exit_system);
}

int mount_in_background(const MountOptions& options, bool verbose) {
  auto pipe = make_readiness_pipe();
  if (!pipe) return fail(pipe.error(), exit_system);
  auto signals = std::make_unique<SignalWaiter>();  // before the fork: no signal may hit the parent alone
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return fail(system_error(errno, "start the daemon"), exit_system);
  if (child == 0) {
    signals.reset();
    { const ReadinessReader closed = std::move(pipe->reader); }
    return run_daemon(options, std::move(pipe->writer));
  }
  { const ReadinessWriter closed = std::move(pipe->writer); }

  const Fd process = open_process(child);
  const SteadyClock clock;
  ProgressBar bar(stderr, clock);
  const Status outcome = pipe->reader.wait([&](const std::string& text) { bar.show(text); }, signals->fd());
  bar.clear();
  if (outcome) {
    if (verbose) fmt::print("clairfs: mounted {} on {}\n", options.source, options.mountpoint);
    return exit_success;
  }
  if (outcome.error().code == EINTR) end_daemon(child, process, options.mountpoint);
  wait_for_end(process, kEndPatience);  // it may still hold its locks
  if (outcome.error().code != EPIPE) return fail(outcome.error(), exit_mount_failure);
  const std::string log =
      options.log_file.empty() ? default_log_file(options.catalog_dir, options.mountpoint) : options.log_file;
  return fail(
      Error{EPIPE, fmt::format("{}: {}; its log is {}", outcome.error().message, how_it_ended(child), log)},
      exit_mount_failure);
}

}  // namespace

int fail(const Error& error, int status) {
  fmt::print(stderr, "clairfs: {}\n", error.message);
  return status;
}

Result<MountOptions> gather_options(const MountRequest& request, const MountOptions& defaults) {
  MountOptions options = defaults;
  options.source = request.source;
  options.mountpoint = request.mountpoint;
  options.foreground = request.foreground;
  const auto listed = parse_mount_option_list(request.option_list, request.sloppy);
  if (!listed) return listed.error();
  OptionValues values = merge(*listed, request.flags);
  if (const auto config = values.find("config"); config != values.end()) {
    const auto read = read_config(config->second.back().text);
    if (!read) return Error{read.error().code, "config file " + read.error().message};
    values = merge(*read, values);
  }
  if (const Status applied = apply_values(values, options); !applied) return applied.error();
  return options;
}

int mount_command(const MountRequest& request) {
  const auto gathered = gather_options(request, default_options(this_machine()));
  if (!gathered) return fail(gathered.error(), exit_usage);
  const auto mounts = current_mounts();
  if (!mounts) return fail(mounts.error(), exit_system);
  const auto options = settle_paths(*gathered, *mounts);
  if (!options) return fail(options.error(), exit_mount_failure);
  const Status permitted = check_permissions(*options, gather_fuse_facts(options->mountpoint));
  if (!permitted) return fail(permitted.error(), exit_mount_failure);
  if (request.fake) return exit_success;
  return options->foreground ? mount_in_foreground(*options) : mount_in_background(*options, request.verbose);
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
  command->add_option("-o", arguments->lists, "Options as mount(8) takes them: ram=2G,allow_other")
      ->type_name("OPTIONS")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_option_flags(*command);
  command->footer(
      "A SIZE is written as 4096, 512M or 20GiB. Unless -f is given, the command returns when the mount is "
      "usable.");
  command->callback([command, arguments, &status] {
    arguments->request.flags = collected_flags(*command);
    arguments->request.option_list = fmt::format("{}", fmt::join(arguments->lists, ","));
    status = mount_command(arguments->request);
  });
}

}  // namespace clairfs
