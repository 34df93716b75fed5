// The composition root: builds catalog, cache and filesystem for one mount and serves it.
#pragma once

#include <functional>
#include <string>

#include "cache/base/log.h"
#include "cache/base/result.h"
#include "mount-helper/options/mount_options.h"

namespace clairfs {

/// How serve() speaks to the process that started it. Called from the thread that called serve().
struct ServeEvents {
  /// Exactly once: mounted and usable, or the error that kept it from being so.
  std::function<void(Status)> ready;
  /// Before `ready`, as often as there is something to say: how far the scan is, in words.
  std::function<void(const std::string&)> progress;
};

/// Mounts, calls events.ready, and serves until unmounted or SIGTERM, SIGINT or SIGHUP; nothing is left
/// mounted. `options` has passed resolve_paths(). Returns the process's exit status (see ExitStatus).
int serve(const MountOptions& options, Logger& log, const ServeEvents& events);

}  // namespace clairfs
