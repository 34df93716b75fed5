// The parts of a mount that live from its first moment to its last: its mount point, the bounds of its end,
// its figures.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "fs/fuse_session.h"
#include "fs/session/pending_reads.h"
#include "mount-helper/options/mount_options.h"
#include "mount-helper/serve/daemon.h"
#include "mount-helper/serve/guard.h"
#include "mount-helper/serve/signals.h"
#include "mount-helper/serve/watchdog.h"

namespace clairfs {

// A transfer that has not ended by then never will: the filesystem below hangs, and the process ends anyway.
constexpr auto kDrainPatience = std::chrono::seconds(10);
// The whole end, drained after reads were given up, and some more for a busy machine. A thread that still
// waits then does so in a system call: a plan's list file on a filesystem that hangs.
constexpr auto kShutDownPatience = 3 * kDrainPatience;
// What is destroyed after that, when nobody waits for it: longer than to free the memory of a large mount
// takes.
constexpr auto kLastPatience = std::chrono::minutes(2);

/// The mount, the guard that ends it with this process, and the time that its end may take. Every function
/// may be called whether it is mounted or not. For the main thread where not said otherwise.
class MountPoint {
 public:
  MountPoint(const MountOptions& options, Logger& log) : options_(options), log_(log) {}
  ~MountPoint();

  /// Makes the mount live unless it is. The session lives until finish(). Errors: those of
  /// FuseSession::mount().
  Result<FuseSession*> mount();
  PendingReads& pending_reads() { return pending_reads_; }

  /// Bounds the end until finish(): READs that still wait after 10 s fail, and after 30 s the process ends.
  /// Later calls do nothing.
  void begin_end();
  /// begin_end(), then FuseSession::stop(): no READ comes any more.
  void stop();
  /// The last step of the end. Nothing may be destroyed where a filesystem below hangs (`at_rest` is false):
  /// the process ends by force then. So it does if this is not destroyed, as the last of all, within
  /// `patience`, which is the tests' own.
  void finish(bool at_rest, std::chrono::milliseconds patience = kLastPatience);

  /// Undoes the mount for a process that ends at once.
  void undo();
  /// The same for one that MPI ends. From any thread.
  void abandon();

 private:
  /// Leaves threads that wait for a filesystem that hangs where they are. From any thread.
  [[noreturn]] void end_by_force();

  const MountOptions& options_;
  Logger& log_;
  PendingReads pending_reads_;
  std::unique_ptr<FuseSession> session_;  // null: not mounted
  Guard guard_;
  bool ending_ = false;
  Watchdog reads_limit_;  // these two while the mount ends
  Watchdog end_limit_;    // and this from then on
};

/// The state that every phase of a mount uses; it outlives them all. Functions are thread-safe.
struct MountBase {
  const MountOptions& options;
  const JobPlace& place;
  Logger& log;
  const ServeEvents& events;
  SignalWaiter& signals;
  const std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();
  const SteadyClock clock{};
  Metrics metrics{};
  MountPoint mount_point{options, log};

  /// Ends the process if a signal asks for it. While nothing is served or half-written yet: what is waited
  /// for then, a scan or the other nodes, can take minutes.
  void end_on_signal();
  /// The job does not want this node any more: the mount ends.
  void refuse(const std::string& why);
  /// Why it does not; empty if it does.
  std::string refusal() const;

  mutable Mutex mutex{};  // leaf; guards refused_because
  std::string refused_because GUARDED_BY(mutex){};
};

}  // namespace clairfs
