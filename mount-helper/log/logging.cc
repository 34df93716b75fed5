#include "mount-helper/log/logging.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>
#include <xxhash.h>

#include "cache/base/escaped.h"
#include "cache/base/own_file.h"
#include "mount-helper/log/log_file.h"
#include "mount-helper/log/log_queue.h"
#include "mount-helper/log/systemd.h"
#include "mount-helper/options/option_table.h"
#include "mount-helper/options/version.h"

namespace clairfs {
namespace {

constexpr size_t kLongestName =
    160;                             // file names end at 255 bytes; the hash, the host and ".log.1" need room
constexpr size_t kLongestHost = 63;  // of one label of a name (RFC 1035)

// With the zone: nodes of a job, and accesslog, which counts in UTC, are compared.
constexpr const char* kPattern = "%Y-%m-%dT%H:%M:%S.%e%z %l ";

Error no_log_file(const std::string& path, const Error& why) {
  return {why.code, fmt::format("log file {}: {}; name another place with --log-file or --catalog-dir", path,
                                why.message)};
}

Result<std::unique_ptr<LogFile>> open_log_file(const std::string& path) {
  const Status made = make_directories(std::filesystem::path(path).parent_path());
  if (!made) return no_log_file(path, made.error());
  auto file = LogFile::open(path);
  if (!file) return no_log_file(path, file.error());
  return file;
}

// One for each place that the lines of make_logger() go to.
std::vector<LogQueue*> queues_of(Logger& log) {
  std::vector<LogQueue*> queues;
  for (const spdlog::sink_ptr& sink : log.sinks()) {
    if (auto* queue = dynamic_cast<LogQueue*>(sink.get())) queues.push_back(queue);
  }
  return queues;
}

bool writes_file(const LogQueue& queue) {
  return dynamic_cast<const LogFile*>(&queue.output()) != nullptr;
}

// On a terminal a line of progress may stand where the next line goes.
std::string before_line() {
  return ::isatty(STDERR_FILENO) == 1 ? "\r\033[K" : "";
}

// `who` stands before each message.
void set_patterns(Logger& log, const std::string& who) {
  for (LogQueue* queue : queues_of(log)) {
    const bool is_file = writes_file(*queue);
    if (!is_file && stderr_is_journal()) {
      queue->set_formatter(journal_formatter(who + "%v"));
    } else {
      queue->set_pattern((is_file ? "" : before_line()) + kPattern + who + "%v");
    }
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
  return fmt::format("{}/log/{}@{}.log", catalog_dir, name, short_host_name());
}

std::string short_host_name() {
  utsname names{};
  std::string host = ::uname(&names) == 0 ? names.nodename : "";
  host = host.substr(0, std::min(host.find_first_of("./"), kLongestHost));
  return host.empty() ? "host" : host;
}

std::string log_file_of(const MountOptions& options) {
  if (!options.log_file.empty() || options.foreground) return options.log_file;
  return default_log_file(options.catalog_dir, options.mountpoint);
}

Result<std::shared_ptr<Logger>> make_logger(const MountOptions& options) {
  std::vector<spdlog::sink_ptr> sinks;
  if (options.foreground) sinks.push_back(std::make_shared<LogQueue>(std::make_unique<StderrOutput>()));
  if (const std::string path = log_file_of(options); !path.empty()) {
    auto file = open_log_file(path);
    if (!file) return file.error();
    sinks.push_back(std::make_shared<LogQueue>(std::move(*file)));
  }
  auto logger = std::make_shared<Logger>("clairfs", sinks.begin(), sinks.end());
  logger->set_level(spdlog::level::from_str(options.log_level));
  set_patterns(*logger, "");
  return logger;
}

Status check_log_file(const MountOptions& options) {
  const std::string file = log_file_of(options);
  std::filesystem::path there = file;  // or the nearest above it that is there
  std::error_code unknown;
  while (there.has_relative_path() && !std::filesystem::exists(there, unknown)) there = there.parent_path();
  if (file.empty() || ::access(there.c_str(), W_OK) == 0) return {};
  return no_log_file(file, system_error(errno, "write to " + there.string()));
}

void start_log(Logger& log) {
  for (LogQueue* queue : queues_of(log)) queue->start();
}

void name_node_in_log(Logger& log, uint32_t node) {
  set_patterns(log, fmt::format("[node {}] ", node));
}

void reopen_log(Logger& log) {
  for (LogQueue* queue : queues_of(log)) queue->open_anew();
}

void log_error_to_file(Logger& log, const std::string& text) {
  if (!log.should_log(spdlog::level::err)) return;
  const spdlog::details::log_msg error(log.name(), spdlog::level::err, text);
  for (LogQueue* queue : queues_of(log)) {
    if (writes_file(*queue)) queue->log(error);
  }
}

bool stderr_takes_a_line() {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  return ::poll(&room, 1, static_cast<int>(LogQueue::kPatience.count())) != 0;
}

std::string log_greeting(const MountOptions& options) {
  utsname names{};
  ::uname(&names);
  std::string text = fmt::format("clairfs {} pid {} user {} on {}, {} {} {}: {} on {}", version_text(),
                                 ::getpid(), ::geteuid(), names.nodename, names.sysname, names.release,
                                 names.machine, escaped(options.source), escaped(options.mountpoint));
  std::istringstream lines(options_text(options));
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && !line.starts_with('#')) text += " " + escaped(line);
  }
  return text;
}

}  // namespace clairfs
