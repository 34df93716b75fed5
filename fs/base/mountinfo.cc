#include "fs/base/mountinfo.h"

#include <algorithm>
#include <sstream>

#include "cache/base/text.h"
#include "fs/base/text_file.h"

namespace clairfs {
namespace {

// Undoes the kernel's \040 for blank, \011 tab, \012 newline and \134 backslash.
std::string unescape(std::string_view text) {
  const auto octal = [&](size_t i) { return text[i] >= '0' && text[i] <= '7'; };
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

// The number after `key`, "user_id=", in a list with commas.
std::optional<uint32_t> number_in(const std::string& options, std::string_view key) {
  std::istringstream list(options);
  for (std::string option; std::getline(list, option, ',');) {
    if (option.starts_with(key)) return parse_whole<uint32_t>(std::string_view(option).substr(key.size()));
  }
  return std::nullopt;
}

}  // namespace

std::vector<MountEntry> parse_mountinfo(std::string_view text) {
  std::vector<MountEntry> mounts;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    // 36 35 98:0 /root /mountpoint options optional... - type source super-options
    std::istringstream fields(line);
    std::string skipped;
    std::string device;
    std::string root;
    std::string mountpoint;
    fields >> skipped >> skipped >> device >> root >> mountpoint;
    while (fields >> skipped && skipped != "-") {
    }
    std::string type;
    std::string source;
    std::string options;
    if (!(fields >> type >> source)) continue;
    fields >> options;
    mounts.push_back({unescape(mountpoint), unescape(type), unescape(source), number_in(options, "user_id="),
                      number_in(options, "group_id="), device, unescape(root)});
  }
  return mounts;
}

Result<std::vector<MountEntry>> current_mounts() {
  const auto text = read_text_file("/proc/self/mountinfo");
  if (!text) return text.error();
  return parse_mountinfo(*text);
}

std::vector<MountEntry> clairfs_mounts(std::span<const MountEntry> mounts) {
  std::vector<MountEntry> found;
  for (const MountEntry& mount : mounts) {
    if (!mount.is_clairfs() || mount.root != "/") continue;
    if (mount_at(mounts, mount.mountpoint)->device != mount.device) continue;
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const MountEntry& other) { return other.device == mount.device; });
    if (!known) found.push_back(mount);
  }
  return found;
}

bool is_within(std::string_view path, std::string_view directory) {
  if (directory == "/" || path == directory) return true;
  return path.starts_with(directory) && path[directory.size()] == '/';
}

std::optional<MountEntry> mount_at(std::span<const MountEntry> mounts, std::string_view path) {
  std::optional<MountEntry> top;
  for (const MountEntry& mount : mounts) {
    if (mount.mountpoint == path) top = mount;
  }
  return top;
}

std::optional<MountEntry> mount_containing(std::span<const MountEntry> mounts, std::string_view path) {
  std::optional<MountEntry> best;
  for (const MountEntry& mount : mounts) {
    if (!is_within(path, mount.mountpoint)) continue;
    if (!best || mount.mountpoint.size() >= best->mountpoint.size()) best = mount;
  }
  return best;
}

}  // namespace clairfs
