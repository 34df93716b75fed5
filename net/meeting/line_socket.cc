#include "net/meeting/line_socket.h"

#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

namespace clairfs {
namespace {

// What one turn takes in at most, so that one connection does not keep the others waiting.
constexpr size_t kMostAtOnce = 1 << 20;

}  // namespace

LineSocket::LineSocket(Fd socket, size_t longest) : socket_(std::move(socket)), longest_(longest) {
  ::fcntl(socket_.get(), F_SETFL, ::fcntl(socket_.get(), F_GETFL) | O_NONBLOCK);
}

short LineSocket::events() const {
  return static_cast<short>(pieces_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void LineSocket::send(std::shared_ptr<const std::string> text) {
  if (!text->empty()) pieces_.push_back(std::move(text));
}

bool LineSocket::turn() {
  const bool open = flush();
  return receive_some() && open;
}

bool LineSocket::flush() {
  while (!pieces_.empty()) {
    const std::string& piece = *pieces_.front();
    const ssize_t n = ::send(socket_.get(), piece.data() + sent_, piece.size() - sent_, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += static_cast<size_t>(n);
    if (sent_ < piece.size()) return true;
    pieces_.pop_front();
    sent_ = 0;
  }
  return true;
}

bool LineSocket::receive_some() {
  std::array<char, 16 << 10> buffer;
  for (size_t taken = 0; taken < kMostAtOnce;) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) return false;
    taken += static_cast<size_t>(n);
    received_.append(buffer.data(), static_cast<size_t>(n));
    const size_t last = received_.rfind('\n');
    const size_t begun = last == std::string::npos ? received_.size() : received_.size() - last - 1;
    if (begun > longest_) return false;
  }
  return true;
}

std::optional<std::string> LineSocket::next() {
  const size_t end = received_.find('\n');
  if (end == std::string::npos || end > longest_) return std::nullopt;
  std::string line = received_.substr(0, end);
  received_.erase(0, end + 1);
  return line;
}

bool turn_within(LineSocket& socket, int milliseconds) {
  pollfd events{socket.fd(), socket.events(), 0};
  ::poll(&events, 1, milliseconds);
  return socket.turn();
}

}  // namespace clairfs
