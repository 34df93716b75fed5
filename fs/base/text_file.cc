#include "fs/base/text_file.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace clairfs {

Result<std::string> read_text_file(const std::string& path) {
  constexpr size_t kLargest = 64 << 20;
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO must not make us wait
  if (!fd) return system_error(errno, "open " + path);
  std::string text;
  std::array<char, 64 << 10> buffer;
  for (;;) {
    const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
    if (got == 0) return text;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(errno, "read " + path);
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > kLargest) return system_error(EFBIG, "read " + path);
  }
}

Status write_text_file(const std::string& path, const std::string& text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return system_error(errno, "create " + path);
  for (size_t written = 0; written < text.size();) {
    const ssize_t put = ::write(fd.get(), text.data() + written, text.size() - written);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return system_error(errno, "write " + path);
    written += static_cast<size_t>(put);
  }
  if (::close(fd.release()) != 0) return system_error(errno, "write " + path);
  return {};
}

}  // namespace clairfs
