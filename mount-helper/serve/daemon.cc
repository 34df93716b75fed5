#include "mount-helper/serve/daemon.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <vector>

#include "mount-helper/log/logging.h"
#include "mount-helper/log/stderr_line.h"
#include "mount-helper/log/systemd.h"
#include "mount-helper/options/defaults.h"
#include "mount-helper/options/exit_status.h"
#include "mount-helper/options/validate.h"
#include "mount-helper/serve/job_node.h"
#include "mount-helper/serve/job_place.h"
#include "mount-helper/serve/loaded.h"
#include "mount-helper/serve/mount_point.h"
#include "mount-helper/serve/serving.h"

namespace clairfs {
namespace {

void warn(const std::vector<std::string>& lines, const MountOptions& options, Logger& log) {
  for (const std::string& line : lines) {
    log.warn("{}", line);
    if (!options.foreground && stderr_takes_a_line()) print_to_stderr("warning: " + line);
  }
}

// In a job the mount point comes first: making it may fork, and MPI must not be forked. It answers when
// everything else is there.
Result<std::unique_ptr<JobNode>> join_job(MountBase& base) {
  if (base.place.size == 1) return std::unique_ptr<JobNode>();
  if (const auto mounted = base.mount_point.mount(); !mounted) return mounted.error();
  if (!base.options.peers) return std::unique_ptr<JobNode>();
  return JobNode::connect(base);
}

// The signal that ends the mount; 0: it was unmounted. In the background no terminal can hang up, and
// SIGHUP is what programs send that have moved a log away.
int wait_for_end(MountBase& base) {
  for (;;) {
    const int signal = base.signals.wait();
    if (signal != SIGHUP || base.options.foreground) return signal;
    reopen_log(base.log);
    base.log.info("the log goes on here");
  }
}

// The phases of a mount: each ends before those that it was made from, and the user hears of a failure
// before any does.
int run(MountBase& base) {
  const auto failed = [&base](const Error& error) {
    base.events.ready(error);
    return exit_mount_failure;
  };
  auto warnings =
      mount_warnings(base.options, available_memory(this_machine()));  // before the mount hides them
  std::ranges::move(job_warnings(base.options, base.place), std::back_inserter(warnings));

  const auto node = join_job(base);
  if (!node) return failed(node.error());
  const auto loaded = Loaded::load(base, node->get());
  if (!loaded) return failed(loaded.error());
  const auto serving = Serving::prepare(base, **loaded);
  if (!serving) return failed(serving.error());
  if (const Status started = (*serving)->start(); !started) return failed(started.error());

  warn(warnings, base.options, base.log);  // a failure is one line alone
  base.events.ready({});
  base.log.info("mounted {} on {}", base.options.source, base.options.mountpoint);
  // In the background the service is another program, which may have started this mount.
  if (base.options.foreground) notify_service_manager("READY=1");
  const int signal = wait_for_end(base);
  if (base.options.foreground) notify_service_manager("STOPPING=1");
  if (signal != 0) base.log.info("signal {}: unmounting {}", signal, base.options.mountpoint);
  return exit_success;
}

}  // namespace

int serve(const MountOptions& options, Logger& log, const ServeEvents& events) {
  SignalWaiter signals;
  const auto place = place_of(options);
  if (!place) {
    events.ready(place.error());
    return exit_usage;
  }
  if (place->size > 1) name_node_in_log(log, place->self.value);
  start_log(log);
  log.info("{}", log_greeting(options));
  int status = exit_success;
  {
    MountBase base{options, *place, log, events, signals};
    status = run(base);
    if (!base.refusal().empty()) status = exit_system;
  }
  log.info("{} {}", status == exit_mount_failure ? "not mounted:" : "unmounted", options.mountpoint);
  if (place->size > 1) {
    // MPI is never finalised, and leaves threads of its own behind that exit() does not always survive.
    log.flush();
    std::fflush(nullptr);
    std::_Exit(status);
  }
  return status;
}

}  // namespace clairfs
