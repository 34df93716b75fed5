#include "mount-helper/serve/background.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <system_error>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/base/thread.h"
#include "mount-helper/log/logging.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/mounts/unmount.h"
#include "mount-helper/options/exit_status.h"
#include "mount-helper/serve/readiness.h"
#include "mount-helper/serve/signals.h"

namespace clairfs {
namespace {

constexpr auto kEndPatience = std::chrono::seconds(10);  // an orderly end takes milliseconds

void to_null(int fd) {
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (null) ::dup2(null.get(), fd);
}

int run_child(const MountOptions& options, const Serve& serve, ReadinessWriter writer) {
  ::signal(SIGHUP, SIG_DFL);  // nohup had it ignored; a daemon has no terminal, and SIGHUP is for its log
  to_null(STDIN_FILENO);
  auto log = make_logger(options);
  if (log && ::chdir("/") != 0) log = system_error(errno, "change to /");
  if (!log) {
    writer.finish(log.error());
    return exit_mount_failure;
  }
  ServeEvents events;
  events.progress = [&](const std::string& text) { writer.progress(text); };
  events.ready = [&](const Status& status) {
    if (status) {  // before the word is out: who reads our output waits for its end
      // Not sooner: an automount lets only its own process group through to the mount point until then.
      ::setsid();
      to_null(STDOUT_FILENO);
      to_null(STDERR_FILENO);
    } else {
      (*log)->error("not mounted: {}", status.error().message);
    }
    writer.finish(status);
  };
  return serve_guarded(serve, options, **log, events);
}

std::string how_it_ended(pid_t child) {
  int status = 0;
  if (::waitpid(child, &status, WNOHANG) != child) return "it still runs";
  if (WIFSIGNALED(status))
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

// Ends a daemon that is not wanted any more, and what it may have mounted.
Status end_daemon(pid_t child, const Fd& process, const std::string& mountpoint) {
  ::kill(child, SIGTERM);
  if (wait_for_end(process, kEndPatience)) return {};
  ::kill(child, SIGKILL);
  wait_for_end(process, kEndPatience);
  return probe(mountpoint, kEndPatience) == ENOTCONN ? unmount(mountpoint, Unmounting::lazy) : Status();
}

Error why_ended(const std::exception& failure) {
  const auto* const refused = dynamic_cast<const std::system_error*>(&failure);
  const bool no_more = refused != nullptr && refused->code() == std::errc::resource_unavailable_try_again;
  return no_more ? no_thread(*refused) : Error{EIO, failure.what()};
}

}  // namespace

int serve_guarded(const Serve& serve, const MountOptions& options, Logger& log, const ServeEvents& events) {
  bool said = false;
  const ServeEvents guarded = {.ready =
                                   [&](Status status) {
                                     if (std::exchange(said, true)) return;
                                     log.flush();  // on a terminal, what led to it comes first
                                     events.ready(std::move(status));
                                   },
                               .progress = events.progress};
  try {
    return serve(options, log, guarded);
  } catch (const std::exception& failure) {
    const Error why = why_ended(failure);
    log.error("ended: {}", why.message);
    guarded.ready(why);
    return exit_system;
  }
}

Status start_in_background(const MountOptions& options, const Serve& serve,
                           const std::function<void(const std::string&)>& on_progress) {
  auto pipe = make_readiness_pipe();
  if (!pipe) return pipe.error();
  auto signals = std::make_unique<SignalWaiter>();  // before the fork: no signal may hit the parent alone
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return system_error(errno, "start the daemon");
  if (child == 0) {
    signals.reset();
    { const ReadinessReader closed = std::move(pipe->reader); }
    std::exit(run_child(options, serve, std::move(pipe->writer)));
  }
  { const ReadinessWriter closed = std::move(pipe->writer); }

  const Fd process = open_process(child);
  Status outcome = pipe->reader.wait(on_progress, signals->fd());
  if (outcome) return outcome;
  if (outcome.error().code == EINTR) {
    if (Status ended = end_daemon(child, process, options.mountpoint); !ended) return ended;
  }
  wait_for_end(process, kEndPatience);  // until then it may hold its locks
  const std::string end = how_it_ended(child);
  if (outcome.error().code != EPIPE) return outcome;
  return Error{EPIPE,
               fmt::format("{}: {}; its log is {}", outcome.error().message, end, log_file_of(options))};
}

}  // namespace clairfs
