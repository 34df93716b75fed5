#include "mount-helper/commands/commands.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <memory>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace clairfs {

int fail(const Error& error, int status) {
  fmt::print(stderr, "clairfs: {}\n", error.message);
  return status;
}

int fail(const Error& error) {
  constexpr std::array kUsers{EINVAL, ENOENT, ENOTDIR, ERANGE};
  const bool usage = std::find(kUsers.begin(), kUsers.end(), error.code) != kUsers.end();
  return fail(error, usage ? exit_usage : exit_system);
}

int finish_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_success;
  return fail(system_error(errno, "write to stdout"));
}

std::string harmless(std::string_view text) {
  std::string shown;
  for (const char c : text)
    shown += c != '\n' && std::iscntrl(static_cast<unsigned char>(c)) != 0
                 ? fmt::format("\\x{:02x}", static_cast<unsigned char>(c))
                 : std::string(1, c);
  if (!shown.empty() && !shown.ends_with('\n')) shown += '\n';
  return shown;
}

Logger stderr_logger() {
  Logger log("clairfs", std::make_shared<spdlog::sinks::stderr_sink_st>());
  log.set_level(spdlog::level::warn);
  log.set_pattern("clairfs: %v");
  return log;
}

}  // namespace clairfs
