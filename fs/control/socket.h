// The control socket: the door that is open also when the kernel's mount is read-only or hangs.
//
// A Unix stream socket in the abstract namespace, so that nothing is left behind by a daemon that was killed.
// The peer's user id decides who may speak: the mount's user and root. One request a connection: the client
// sends a command (see fs/control/commands.h) and shuts its side down; the answer is "ok\n" or "error
// ERRNO\n", then text. Requests are served one after the other, each with a deadline, so a client that stalls
// holds up only the next one, and not for long; other users' are refused unheard.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cache/base/fd.h"
#include "cache/base/log.h"
#include "cache/base/result.h"
#include "cache/base/thread.h"

namespace clairfs {

/// How the names of all control sockets begin.
inline constexpr std::string_view kControlSocketPrefix = "clairfs.";

class ControlSocket {
 public:
  using Handler = std::function<Result<std::string>(std::string_view command)>;

  /// `handler` is called on the socket's thread. Errors: those of socket(2) and bind(2).
  static Result<std::unique_ptr<ControlSocket>> open(Handler handler, Logger& log);
  ~ControlSocket();

  /// Its name in the abstract namespace, without the leading NUL.
  const std::string& name() const { return name_; }

 private:
  ControlSocket(Fd listener, Fd stop, std::string name, Handler handler, Logger& log);
  void serve();
  void answer(const Fd& connection);

  const Fd listener_;
  const Fd stop_;  // eventfd
  const std::string name_;
  const Handler handler_;
  Logger& log_;
  NamedThread thread_;
};

/// The client's side: sends a command and returns the answer's text. Errors: what the daemon answered;
/// ECONNREFUSED when it is gone; ETIMEDOUT.
Result<std::string> ask_control_socket(const std::string& name, std::string_view command,
                                       int timeout_seconds);

}  // namespace clairfs
