#include "mount-helper/serve/logging.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <spdlog/sinks/rotating_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

namespace clairfs {
namespace {

constexpr size_t kLogBytes = 4 << 20;  // weeks of a quiet mount, and a few seconds to read through
constexpr size_t kOldLogs = 1;
constexpr size_t kLongestName = 200;  // file names end at 255 bytes; ".log", ".1" and the hash need room

Result<spdlog::sink_ptr> file_sink(const std::string& path) {
  const Status made = make_directories(std::filesystem::path(path).parent_path());
  if (!made) {
    return Error{made.error().code,
                 fmt::format("log file {}: {}; name another place with --log-file or --catalog-dir", path,
                             made.error().message)};
  }
  try {
    return spdlog::sink_ptr(
        std::make_shared<spdlog::sinks::rotating_file_sink_mt>(path, kLogBytes, kOldLogs));
  } catch (const spdlog::spdlog_ex& failure) {
    return Error{EIO, fmt::format("log file {}: {}; name another place with --log-file or --catalog-dir",
                                  path, failure.what())};
  }
}

}  // namespace

std::string default_log_file(const std::string& catalog_dir, const std::string& mountpoint) {
  std::string name = mountpoint.substr(std::min(mountpoint.find_first_not_of('/'), mountpoint.size()));
  const bool ambiguous = name.find('-') != std::string::npos || name.size() > kLongestName || name.empty();
  std::replace(name.begin(), name.end(), '/', '-');
  if (ambiguous) {
    name = fmt::format("{}-{:016x}", name.substr(0, kLongestName),
                       XXH3_64bits(mountpoint.data(), mountpoint.size()));
  }
  return fmt::format("{}/log/{}.log", catalog_dir, name);
}

std::string log_file_of(const MountOptions& options) {
  if (!options.log_file.empty() || options.foreground) return options.log_file;
  return default_log_file(options.catalog_dir, options.mountpoint);
}

Status make_directories(const std::string& directory) {
  if (directory.empty() || ::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT) return system_error(errno, "make directory " + directory);
  const std::string parent = std::filesystem::path(directory).parent_path();
  if (parent == directory) return system_error(ENOENT, "make directory " + directory);
  if (Status made = make_directories(parent); !made) return made;
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return system_error(errno, "make directory " + directory);
  return {};
}

Result<std::shared_ptr<Logger>> make_logger(const MountOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.foreground) sinks.push_back(std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (const std::string file = log_file_of(options); !file.empty()) {
    auto sink = file_sink(file);
    if (!sink) return sink.error();
    sinks.push_back(*sink);
  }
  auto logger = std::make_shared<Logger>("clairfs", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::from_str(options.log_level));
  logger->flush_on(spdlog::level::info);  // a log is read after a crash
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l %v");
  return logger;
}

}  // namespace clairfs
