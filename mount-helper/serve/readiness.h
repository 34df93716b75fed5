// From the daemon to the command that started it: "mounted and usable", the error, or how far it is.
//
// Protocol: lines over a pipe. "P text" progress, any number; then exactly one of "R" (ready) or "E errno
// text". End of file before that means that the daemon died. So only the daemon may hold the writing end: it
// is close-on-exec, and the reader closes its copy after fork().
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/base/fd.h"
#include "cache/base/result.h"

namespace clairfs {

/// The daemon's end. Not thread-safe. Writing to a reader that is gone is no error: the mount goes on.
class ReadinessWriter {
 public:
  explicit ReadinessWriter(Fd pipe) : pipe_(std::move(pipe)) {}
  void progress(std::string_view text);
  /// Sends the outcome and closes the pipe; later calls do nothing.
  void finish(const Status& status);

 private:
  void send(std::string line);
  Fd pipe_;
};

/// The waiting command's end.
class ReadinessReader {
 public:
  explicit ReadinessReader(Fd pipe) : pipe_(std::move(pipe)) {}
  /// Waits for the outcome, handing progress texts on. Ends when the daemon does, or when `interrupt_fd` (a
  /// signalfd, or -1) becomes readable. Errors: what the daemon sent; EPIPE if it died without a word; EINTR.
  Status wait(const std::function<void(const std::string&)>& on_progress, int interrupt_fd = -1);

 private:
  Fd pipe_;
};

struct ReadinessPipe {
  ReadinessReader reader;
  ReadinessWriter writer;
};
/// Errors: what pipe(2) says.
Result<ReadinessPipe> make_readiness_pipe();

}  // namespace clairfs
