// Signals: those that end a mount are events that the main thread waits for; those that warn are ignored.
#pragma once

#include "cache/base/fd.h"

namespace clairfs {

/// Makes this process, and those that it starts, ignore the signals that inform programs which expect them
/// and end all others. Call it before the mount takes its first long step.
/// - SIGUSR1, SIGUSR2: batch systems send them to every process of a job, to have a training save itself
///   (Slurm's --signal, Grid Engine's -notify), mpiexec sends the first when a rank has died.
/// - SIGXCPU: the CPU time limit comes near. The signal that ends a job, SIGTERM or SIGKILL, comes later.
/// - SIGXFSZ: a write went beyond the limit on file sizes, which it also says itself (EFBIG).
/// SIGURG and SIGCONT, also sent as warnings, end no process.
void ignore_warnings();

/// Takes SIGTERM, SIGINT and (unless nohup had it ignored) SIGHUP over for its lifetime. Make it in the main
/// thread before any other thread, so that all threads inherit the blocked mask; destroy it there too.
/// SIGPIPE is ignored from then on.
class SignalWaiter {
 public:
  /// Throws std::system_error when descriptors cannot be had (start-up only).
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  /// Waits for a signal, whose number is returned, or for notify(), which gives 0.
  int wait();
  /// The number of a signal that has arrived, without waiting; 0 if none. It is not taken off: wait() will
  /// see it. For long work before wait(), such as the scan.
  int pending() const;
  /// Ends wait(). Thread-safe; call it when the mount has ended.
  void notify();

  /// Readable once a signal has arrived; for poll(2).
  int fd() const { return signals_.get(); }

 private:
  Fd signals_;       // signalfd
  Fd notification_;  // eventfd, never read: a notification lasts
};

}  // namespace clairfs
