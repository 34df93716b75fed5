#include "mount-helper/options/defaults.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "fs/base/text_file.h"

namespace clairfs {
namespace {

constexpr uint64_t kUnknownMemory = 1ULL << 30;   // small enough for any machine that trains
constexpr uint64_t kLargestStaging = 1ULL << 30;  // seconds of reading at several hundred MB/s
constexpr unsigned kFewestThreads = 2;            // one may be in a slow system call
constexpr unsigned kMostThreads = 8;              // requests are answered from memory: more only contend

std::optional<uint64_t> first_number(const std::string& text) {
  std::istringstream stream(text);
  uint64_t number = 0;
  return stream >> number ? std::optional(number) : std::nullopt;  // "max" is no number
}

std::optional<uint64_t> memory_available(const Machine& machine) {
  const auto meminfo = machine.read_file("/proc/meminfo");
  if (!meminfo) return std::nullopt;
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = meminfo->find(kKey);
  if (at == std::string::npos) return std::nullopt;
  const auto kibibytes = first_number(meminfo->substr(at + kKey.size()));
  return kibibytes ? std::optional(*kibibytes * 1024) : std::nullopt;
}

// The lowest of the numbers in `file` in `base` + `group` and the directories above it down to `base`. A
// container may see only the latter.
std::optional<uint64_t> lowest_limit(const Machine& machine, const std::string& base, std::string group,
                                     const std::string& file) {
  std::optional<uint64_t> lowest;
  for (;;) {
    while (group.ends_with('/')) group.pop_back();
    if (const auto text = machine.read_file(fmt::format("{}{}/{}", base, group, file))) {
      if (const auto limit = first_number(*text)) lowest = std::min(lowest.value_or(*limit), *limit);
    }
    if (group.empty()) return lowest;
    group.erase(group.rfind('/'));
  }
}

std::optional<uint64_t> cgroup_limit(const Machine& machine) {
  const auto cgroups = machine.read_file("/proc/self/cgroup");
  if (!cgroups) return std::nullopt;
  std::optional<uint64_t> lowest;
  std::istringstream lines(*cgroups);
  for (std::string line; std::getline(lines, line);) {  // "0::/group" (v2) or "4:memory:/group" (v1)
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    std::optional<uint64_t> limit;
    if (controllers == ",,") {
      limit = lowest_limit(machine, "/sys/fs/cgroup", group, "memory.max");
    } else if (controllers.find(",memory,") != std::string::npos) {
      limit = lowest_limit(machine, "/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
    }
    if (limit) lowest = std::min(lowest.value_or(*limit), *limit);
  }
  return lowest;
}

std::string default_catalog_dir(const Machine& machine) {
  if (machine.uid == 0) return "/var/cache/clairfs";
  if (machine.xdg_cache_home.starts_with('/')) return machine.xdg_cache_home + "/clairfs";
  if (!machine.home.empty()) return machine.home + "/.cache/clairfs";
  return "";  // a directory that others may write to, such as /var/tmp, could have been prepared by one of
              // them
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.read_file = [](const std::string& path) -> std::optional<std::string> {
    auto text = read_text_file(path);
    return text ? std::optional(std::move(*text)) : std::nullopt;
  };
  machine.uid = ::geteuid();
  machine.processors = std::max(1U, std::thread::hardware_concurrency());
  machine.xdg_cache_home = environment("XDG_CACHE_HOME");
  machine.home = environment("HOME");
  if (machine.home.empty()) {  // systemd starts helpers without HOME
    if (const passwd* user = ::getpwuid(machine.uid)) machine.home = user->pw_dir;
  }
  return machine;
}

uint64_t available_memory(const Machine& machine) {
  const auto available = memory_available(machine);
  const auto limit = cgroup_limit(machine);
  if (available && limit) return std::min(*available, *limit);
  if (available) return *available;
  return std::min(limit.value_or(kUnknownMemory), kUnknownMemory);
}

MountOptions default_options(const Machine& machine) {
  const uint64_t memory = available_memory(machine);
  MountOptions options;
  options.ram = memory / 4;
  options.staging = std::min(kLargestStaging, memory / 10);
  options.page_cache = memory / 4;
  options.catalog_dir = default_catalog_dir(machine);
  options.fuse_threads = std::clamp(machine.processors, kFewestThreads, kMostThreads);
  return options;
}

}  // namespace clairfs
