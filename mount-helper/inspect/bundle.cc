#include "mount-helper/inspect/bundle.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <set>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/utsname.h>

#include "cache/base/text.h"
#include "fs/base/text_file.h"
#include "mount-helper/commands/commands.h"
#include "mount-helper/log/logging.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/options/defaults.h"
#include "mount-helper/options/option_table.h"
#include "mount-helper/options/version.h"

namespace clairfs {
namespace {

using BundleJson = nlohmann::ordered_json;

constexpr auto kBundlePatience = std::chrono::seconds(5);
// Placeholders of options whose values name something.
constexpr std::array<std::string_view, 4> kNaming = {"DIR", "FILE", "HOST", "GLOB"};
constexpr size_t kMostOfALog = 256 << 10;  // some thousand lines

void section(std::string& out, const std::string& title, const std::string& text) {
  out += fmt::format("==== {}\n{}{}", title, text, text.empty() || text.ends_with('\n') ? "" : "\n");
}

std::string text_or_error(const Result<std::string>& text) {
  return text ? *text : "(" + text.error().message + ")";
}

std::string lines_with(const std::string& text, std::string_view part) {
  std::istringstream lines(text);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    if (line.find(part) != std::string::npos) out += line + "\n";
  }
  return out;
}

std::string machine_text() {
  utsname names{};
  ::uname(&names);
  std::string out =
      fmt::format("clairfs {}\n{} {} {}\n", version_text(), names.sysname, names.release, names.machine);
  out += lines_with(text_or_error(read_text_file("/etc/os-release")), "PRETTY_NAME");
  return out + lines_with(text_or_error(read_text_file("/proc/meminfo")), "Mem");
}

// The last lines of a log.
std::string end_of_log(const std::string& file, bool with_names) {
  auto text = read_with_deadline(file, kBundlePatience);
  if (!text) return text_or_error(text);
  if (text->size() > kMostOfALog) text->erase(0, text->find('\n', text->size() - kMostOfALog) + 1);
  if (with_names) return *text;
  std::istringstream lines(*text);
  std::string out;
  for (std::string line; std::getline(lines, line);) out += anonymous_log_line(line) + "\n";
  return out;
}

std::string log_file_in(const std::string& status) {
  constexpr std::string_view kLabel = "\nlog ";
  const size_t at = status.rfind(kLabel);
  if (at == std::string::npos) return "";
  const size_t begin = at + kLabel.size();
  return status.substr(begin, status.find('\n', begin) - begin);
}

// The log of a mount that was given no options: one whose daemon is gone does not tell where it was.
std::string default_log_of(const std::string& mountpoint) {
  const auto standing = standing_options();
  MountOptions options = standing ? *standing : default_options(this_machine());
  options.mountpoint = mountpoint;
  return log_file_of(options);
}

// The limits of the process that serves the mount, not of this one.
std::string limits_of(const std::string& stats) {
  const auto json = BundleJson::parse(stats, nullptr, false);
  const auto pid = json.is_object() ? json.value("/daemon/pid"_json_pointer, 0) : 0;
  return text_or_error(read_text_file(fmt::format("/proc/{}/limits", pid)));
}

void add_mount_sections(std::string& out, const std::string& mountpoint, size_t number, bool with_names) {
  const auto read = [&](const char* name) {
    return read_with_deadline(mountpoint + "/.clairfs/" + name, kBundlePatience);
  };
  const std::string title = with_names ? mountpoint : fmt::format("mount {}", number);
  const auto stats = read("stats.json");
  section(out, title + ": stats.json", !stats || with_names ? text_or_error(stats) : anonymous_stats(*stats));
  if (stats) section(out, title + ": limits", limits_of(*stats));
  const auto config = read("config");
  section(out, title + ": config", !config || with_names ? text_or_error(config) : anonymous_config(*config));
  const auto status = read("status");
  if (with_names) {
    for (const char* name : {"status", "peers", "plan", "last_error", "accesslog"})
      section(out, title + ": " + name, text_or_error(read(name)));
  }
  const std::string log = status ? log_file_in(*status) : default_log_of(mountpoint);
  if (!log.empty()) section(out, title + ": log", end_of_log(log, with_names));
}

bool is_word_of_ours(const std::string& word) {
  static const std::set<std::string> kWords = {
      "clairfs",  "mounted", "unmounted", "not", "signal", "the",  "catalog:", "plan", "NVMe",
      "io_uring", "a",       "peers",     "job", "node",   "rank", "MPI",      "READs"};
  return kWords.contains(word);
}

}  // namespace

std::string anonymous_log_line(const std::string& line) {
  std::istringstream words(line);
  std::string time, level, word;
  if (!(words >> time >> level) || time.size() < 20 || !std::isdigit(static_cast<unsigned char>(time[0])))
    return "(a line that may name files)";
  std::string out = time + " " + level;
  if (!(words >> word)) return out;
  if (word.starts_with("[node") && words >> word && words >> word) out += " [node]";
  if (!is_word_of_ours(word)) return out + " (...)";
  out += " " + word;
  // "clairfs 0.1.0 (461f177a3b2c) pid 7": a number after a word of ours is nobody's name either.
  const bool greeting = word == "clairfs";
  while (words >> word) {
    const bool number = std::all_of(word.begin(), word.end(),
                                    [](unsigned char c) { return std::isdigit(c) != 0 || c == '.'; });
    if (!number && !is_word_of_ours(word) &&
        !(greeting && (word == "pid" || word == "user" || word[0] == '(')))
      break;
    out += " " + word;
  }
  return out + " ...";
}

std::string anonymous_config(const std::string& config) {
  std::istringstream lines(config);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    const OptionSpec* option = find_option(line.substr(0, equals));
    if (option == nullptr || equals == std::string::npos) continue;
    const std::string_view kind = option->argument;
    const bool names = std::any_of(kNaming.begin(), kNaming.end(), [kind](std::string_view word) {
      return kind.find(word) != std::string_view::npos;
    });
    if (!names) {
      out += line + "\n";
      continue;
    }
    // Of DIR:SIZE and GLOB=SIZE the size, a number of bytes, names nothing.
    const size_t size = line.find_last_of(":=");
    const bool sized = size > equals && kind.find("SIZE") != std::string_view::npos &&
                       parse_whole<uint64_t>(line.substr(size + 1)).has_value();
    out += line.substr(0, equals) + "=(...)" + (sized ? line.substr(size) : "") + "\n";
  }
  return out;
}

std::string anonymous_stats(const std::string& stats) {
  BundleJson json = BundleJson::parse(stats, nullptr, false);
  if (!json.is_object()) return "(no JSON)";
  for (const char* key : {"source", "mountpoint"}) json.erase(key);
  if (json.contains("daemon") && json["daemon"].is_object()) json["daemon"].erase("control_socket");
  if (json.contains("troubles") && json["troubles"].is_array()) {
    for (BundleJson& trouble : json["troubles"]) {
      if (!trouble.is_object()) continue;
      trouble.erase("first");
      trouble.erase("text");
    }
  }
  if (json.contains("plan_list") && json["plan_list"].is_array()) {
    for (BundleJson& plan : json["plan_list"]) {
      if (!plan.is_object()) continue;
      for (const char* key : {"name", "text", "plan", "divergence", "followed_instead"}) plan.erase(key);
    }
  }
  if (json.contains("job")) json.erase("job");  // names of hosts, and what they said as they left
  return json.dump(2, ' ', false, BundleJson::error_handler_t::replace) + "\n";
}

std::string bundle_text(const std::vector<std::string>& mountpoints, const std::string& findings,
                        bool with_names) {
  std::string out;
  section(out, "machine", machine_text());
  section(out, "doctor", findings);
  section(out, "fuse.conf", text_or_error(read_text_file("/etc/fuse.conf")));
  if (with_names)
    section(out, "mounts", lines_with(text_or_error(read_text_file("/proc/self/mountinfo")), "fuse"));
  for (size_t i = 0; i < mountpoints.size(); ++i) add_mount_sections(out, mountpoints[i], i + 1, with_names);
  return out;
}

}  // namespace clairfs
