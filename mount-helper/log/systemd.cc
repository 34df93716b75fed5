#include "mount-helper/log/systemd.h"

#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace clairfs {
namespace {

// While it reloads all its units it takes nothing. A mount does without a manager that hangs.
constexpr timeval kManagerPatience{2, 0};

// %* in a pattern: the level as syslog(3) counts it.
class SyslogLevel final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    const int level = message.level >= spdlog::level::critical ? 2
                      : message.level == spdlog::level::err    ? 3
                      : message.level == spdlog::level::warn   ? 4
                      : message.level == spdlog::level::info   ? 6
                                                               : 7;
    out.push_back('<');
    out.push_back(static_cast<char>('0' + level));
    out.push_back('>');
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<SyslogLevel>(); }
};

}  // namespace

void notify_service_manager(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  if (path == nullptr || (path[0] != '/' && path[0] != '@')) return;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kManagerPatience, sizeof(kManagerPatience));
  ::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address),
           static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length));
}

bool stderr_is_journal() {
  const char* stream = std::getenv("JOURNAL_STREAM");
  struct stat attributes {};
  if (stream == nullptr || ::fstat(STDERR_FILENO, &attributes) != 0) return false;
  return fmt::format("{}:{}", attributes.st_dev, attributes.st_ino) == stream;
}

std::unique_ptr<spdlog::formatter> journal_formatter(const std::string& pattern) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<SyslogLevel>('*').set_pattern("%*" + pattern);
  return formatter;
}

}  // namespace clairfs
