// Serving in the background: a child serves, and the parent waits for its word.
//
// The child is forked before there is any thread. It reports through a pipe (readiness.h) that only it holds,
// so that its end, however it comes, ends the parent's wait. A signal to the waiting parent ends the child
// too.
#pragma once

#include <functional>
#include <string>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"
#include "mount-helper/serve/daemon.h"

namespace clairfs {

/// serve() of daemon.h, or a test's own.
using Serve = std::function<int(const MountOptions&, Logger&, const ServeEvents&)>;

/// Runs `serve` in a child process with its own session and log file. Returns in the parent alone, once the
/// mount is usable or the child has ended. REQUIRES: this process has one thread. Errors: what the child
/// reported; EPIPE if it died without a word, with how and where its log is; EINTR after a termination
/// signal, the child being ended then.
Status start_in_background(const MountOptions& options, const Serve& serve,
                           const std::function<void(const std::string&)>& on_progress);

/// Calls `serve`, making an exception that leaves it an error to `events.ready` (unless that was called) and
/// to the log. events.ready is called at most once.
int serve_guarded(const Serve& serve, const MountOptions& options, Logger& log, const ServeEvents& events);

}  // namespace clairfs
