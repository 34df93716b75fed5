#include "mount-helper/log/log_output.h"

#include <cerrno>

#include <poll.h>
#include <unistd.h>

namespace clairfs {

bool StderrOutput::write(std::string_view line) {
  return write_whole(STDERR_FILENO, line);
}

bool write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
    } else if (errno == EAGAIN) {  // some other program shares it that does not want to wait
      pollfd room{fd, POLLOUT, 0};
      if (::poll(&room, 1, -1) < 0 && errno != EINTR) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace clairfs
