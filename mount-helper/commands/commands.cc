#include "mount-helper/commands/commands.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "mount-helper/log/stderr_line.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kOutputPatience = std::chrono::seconds(10);  // a busy filesystem answers within one

}  // namespace

Status check_output(const std::string& file) {
  if (file.empty()) return {};
  const auto fits = with_deadline(file, kOutputPatience, [&]() -> Result<std::string> {
    std::error_code unknown;
    if (std::filesystem::is_directory(file, unknown)) return system_error(EISDIR, "create " + file);
    const std::filesystem::path folder = std::filesystem::path(file).parent_path();
    const bool there = ::access(file.c_str(), F_OK) == 0;
    const std::string written = there ? file : folder.empty() ? "." : folder.string();
    if (::access(written.c_str(), W_OK) != 0) return system_error(errno, "create " + file);
    return std::string();
  });
  return fits ? Status() : fits.error();
}

Status check_plot(const std::string& file) {
  for (const char* other : {".png", ".jpg", ".jpeg", ".gif", ".pdf"}) {
    if (file.ends_with(other))
      return Error{EINVAL, fmt::format("--plot {}: the picture is SVG; name the file so", file)};
  }
  return check_output(file);
}

int fail(const Error& error, int status) {
  std::string line = escape_controls(error.message);  // paths in it may hold any byte
  std::replace(line.begin(), line.end(), '\n', ' ');
  print_to_stderr(line);
  return status;
}

int fail(const Error& error) {
  constexpr std::array kUsers{EINVAL, ENODATA, ENOENT, ENOTDIR, ERANGE};
  const bool usage = std::find(kUsers.begin(), kUsers.end(), error.code) != kUsers.end();
  return fail(error, usage ? exit_usage : exit_system);
}

int finish_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_success;
  return fail(system_error(errno, "write to stdout"));
}

int print_answer(std::string_view text) {
  fmt::print("{}{}", escape_controls(text), text.empty() || text.ends_with('\n') ? "" : "\n");
  return finish_output();
}

Logger stderr_logger() {
  Logger log("clairfs", std::make_shared<spdlog::sinks::stderr_sink_st>());
  log.set_level(spdlog::level::warn);
  log.set_pattern("clairfs: %v");
  return log;
}

}  // namespace clairfs
