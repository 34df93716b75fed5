#include "mount-helper/client/control_client.h"

#include <cerrno>
#include <filesystem>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "fs/base/mountinfo.h"
#include "fs/control/socket.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/mounts/resolve_path.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {
namespace {

constexpr auto kPatience = std::chrono::seconds(10);  // a busy daemon answers within one

// What `path` is called below `directory`; empty for the directory itself. REQUIRES: is_within().
std::string below(const std::string& path, const std::string& directory) {
  if (path == directory) return "";
  return path.substr(directory == "/" ? 1 : directory.size() + 1);
}

// A word "key=value" with its value in quotes that keep everything as it is.
std::string quoted_pair(const std::string& word) {
  const size_t value = word.find('=') + 1;  // npos + 1 is 0: what is no pair becomes one quoted word
  std::string quoted = word.substr(0, value) + '"';
  for (const char c : word.substr(value)) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

void make_absolute(std::string& file, const std::string& here) {
  if (is_relative_file(file)) file = (std::filesystem::path(here) / file).lexically_normal();
}

std::string without_prefix(const std::string& path, const std::string& directory) {
  return !directory.empty() && is_within(path, directory) ? below(path, directory) : path;
}

Result<std::string> root_below(const std::string& root, const ControlledMount& mount) {
  if (root.empty()) return mount.folder;
  std::string plain = std::filesystem::path(root).lexically_normal();
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  if (plain == ".") plain.clear();
  std::string below_mount = without_prefix(plain, mount.mountpoint);
  if (mount.folder.empty() || mount.folder == below_mount) return below_mount;
  if (mount.folder == without_prefix(plain, mount.source)) return mount.folder;
  return Error{EINVAL,
               fmt::format("two roots: {} and {}; give no root=, or the mountpoint instead of the folder",
                           escaped(mount.folder), escaped(root))};
}

}  // namespace

Result<ControlledMount> find_controlled_mount(const std::string& path) {
  const auto mount = find_clairfs_mount(path);
  if (!mount) return mount.error();
  const auto resolved = resolve_path(path);
  if (!resolved) return resolved.error();
  const auto stats = read_with_deadline(mount->mountpoint + "/.clairfs/stats.json", kPatience);
  if (!stats) return stats.error();
  const auto parsed = nlohmann::json::parse(*stats, nullptr, false);
  const auto socket = nlohmann::json::json_pointer("/daemon/control_socket");
  if (parsed.is_discarded() || !parsed.contains(socket) || !parsed[socket].is_string()) {
    return Error{EPROTO, fmt::format("the daemon of {} names no control socket; is it of another version? "
                                     "'clairfs status {}' tells",
                                     mount->mountpoint, mount->mountpoint)};
  }
  const std::string name = parsed[socket];
  // Another user's program may pretend to be a mount: it must not make us speak to some other service.
  if (!name.starts_with(kControlSocketPrefix)) {
    return Error{
        EPROTO,
        fmt::format(
            "{}/.clairfs/stats.json names a socket that does not belong to clairfs; refusing to connect",
            mount->mountpoint)};
  }
  const auto source = parsed.find("source");
  return ControlledMount{mount->mountpoint, below(*resolved, mount->mountpoint), name,
                         source != parsed.end() && source->is_string() ? source->get<std::string>() : ""};
}

Result<std::string> ask_mount(const ControlledMount& mount, std::string_view command, int seconds) {
  auto answer = ask_control_socket(mount.socket, command, seconds);
  if (answer || answer.error().code != ECONNREFUSED) return answer;
  return Error{ECONNREFUSED,
               fmt::format("the daemon of {} cannot be reached from here, as from another network "
                           "namespace; use {}/.clairfs/plan instead",
                           mount.mountpoint, mount.mountpoint)};
}

std::string plan_text_of(const std::vector<std::string>& words) {
  if (words.size() == 1) return words.front();
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + quoted_pair(word);
  return text;
}

Result<std::string> plan_to_register(const std::string& text, const ControlledMount& mount,
                                     const std::string& here) {
  if (const Status fits = check_plan_size(text); !fits) return fits.error();  // the socket takes no more
  auto spec = parse_plan(text);
  if (!spec) return text;
  auto root = root_below(spec->root, mount);
  if (!root) return root.error();
  spec->root = std::move(*root);
  for_each_file(*spec, [&](const char*, std::string& file) { make_absolute(file, here); });
  std::string told = format_plan(*spec);
  if (const Status fits = check_plan_size(told); !fits) return fits.error();
  return told;
}

}  // namespace clairfs
