#include "mount-helper/serve/mount_point.h"

#include <csignal>
#include <cstdlib>
#include <utility>

#include "cache/base/units.h"
#include "mount-helper/options/exit_status.h"

namespace clairfs {
namespace {

FuseOptions fuse_options(const MountOptions& options) {
  FuseOptions fuse;
  fuse.source = options.source;
  fuse.mountpoint = options.mountpoint;
  fuse.allow_other = options.allow_other;
  fuse.read_only = options.read_only;
  fuse.no_exec = options.no_exec;
  fuse.threads = options.fuse_threads;
  return fuse;
}

}  // namespace

MountPoint::~MountPoint() {
  if (!session_) return;
  stop();
  finish(true);  // no phase was reached that could be busy
}

Result<FuseSession*> MountPoint::mount() {
  if (session_) return session_.get();
  auto session = FuseSession::mount(fuse_options(options_), log_);
  if (!session) return session.error();
  session_ = std::move(*session);
  if (const Status guarded = guard_.start(options_.mountpoint); !guarded)
    log_.warn("{}: should this process be killed, readers may wait for ever", guarded.error().message);
  return session_.get();
}

// When the source hangs, a push may sleep in the kernel on a page of a READ that waits for it.
void MountPoint::begin_end() {
  if (std::exchange(ending_, true)) return;
  reads_limit_.watch(kDrainPatience, [this] {
    log_.error("shutdown is taking longer than {}; failing the reads that still wait",
               format_duration(kDrainPatience));
    pending_reads_.give_up();
  });
  end_limit_.watch(kShutDownPatience, [this] { end_by_force(); });
}

void MountPoint::stop() {
  begin_end();
  if (session_) session_->stop();
}

// At rest means that all reads are answered. Files may still be closed, which the io backend waits for when
// it is destroyed.
void MountPoint::finish(bool at_rest, std::chrono::milliseconds patience) {
  if (at_rest) guard_.stop();
  end_limit_.rest();
  reads_limit_.rest();
  if (!at_rest) end_by_force();
  session_.reset();
  end_limit_.watch(patience, [this] { end_by_force(); });
}

void MountPoint::undo() {
  guard_.stop();
  if (session_) session_->stop();  // MPI's end of this process may be doing the same
}

void MountPoint::abandon() {
  guard_.abort();
  if (session_) session_->stop();
  log_.flush();
}

void MountPoint::end_by_force() {
  guard_.abort();
  if (session_) {
    session_->detach();
    session_->close_device();
  }
  log_.error("a filesystem below {} does not answer; ending without waiting for it", options_.mountpoint);
  log_.flush();
  std::_Exit(exit_system);
}

void MountBase::end_on_signal() {
  const int signal = signals.pending();
  if (signal == 0 || (signal == SIGHUP && !options.foreground)) return;  // then it is for the log
  mount_point.undo();
  log.flush();
  std::_Exit(128 + signal);
}

void MountBase::refuse(const std::string& why) {
  {
    MutexLock lock(mutex);
    refused_because = why;
  }
  signals.notify();
}

std::string MountBase::refusal() const {
  MutexLock lock(mutex);
  return refused_because;
}

}  // namespace clairfs
