// Lines of text over a stream socket that never blocks: what goes out is queued, what comes in is cut at
// '\n'.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "cache/base/fd.h"

namespace clairfs {

/// Not thread-safe. Move-only. The owner polls fd() for events(), then calls turn().
class LineSocket {
 public:
  LineSocket() = default;
  /// Makes `socket` non-blocking. Lines longer than `longest` bytes end the connection.
  LineSocket(Fd socket, size_t longest);

  int fd() const { return socket_.get(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  /// For poll(2).
  short events() const;
  /// Queues whole lines, each with its '\n'. Text that goes to many can be shared.
  void send(std::string text) { send(std::make_shared<const std::string>(std::move(text))); }
  void send(std::shared_ptr<const std::string> text);
  /// Sends and receives what is possible now. False once nothing more will come: the other end has closed,
  /// the connection broke, or a line was too long. Lines that came before can still be taken.
  bool turn();
  /// Sends alone. False once the connection is broken.
  bool flush();
  bool all_sent() const { return pieces_.empty(); }
  /// The next whole line, without its end.
  std::optional<std::string> next();
  /// From now on lines may be this long.
  void allow(size_t longest) { longest_ = longest; }
  /// Gives the socket away unclosed.
  int release() { return socket_.release(); }

 private:
  bool receive_some();

  Fd socket_;
  size_t longest_ = 0;
  std::deque<std::shared_ptr<const std::string>> pieces_;
  size_t sent_ = 0;  // of the first piece
  std::string received_;
};

/// Polls one socket for at most `milliseconds`, then takes its turn.
bool turn_within(LineSocket& socket, int milliseconds);

}  // namespace clairfs
