#include "mount-helper/mounts/resolve_path.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "fs/base/mountinfo.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kResolvePatience = std::chrono::seconds(10);  // a busy filesystem answers within one
constexpr int kMostLinks = 40;                               // that the kernel follows in one path

// A slash at the end would ask for the right to enter, which root has not in a user's mount that he may end.
Result<std::string> real_path(const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(plain.c_str(), nullptr), &std::free);
  if (!resolved) return system_error(errno, path);
  return std::string(resolved.get());
}

// An absolute path with those symlinks resolved that can be read. What is below a stale mount cannot, and
// stays as it is spelt.
std::filesystem::path follow_links(const std::filesystem::path& absolute) {
  std::deque<std::filesystem::path> left(absolute.begin(), absolute.end());
  std::filesystem::path at;  // without links
  for (int links = 0; !left.empty();) {
    const auto name = left.front();
    left.pop_front();
    if (name.empty() || name == ".") continue;
    const auto next = name == ".." ? at.parent_path() : at / name;
    std::error_code failure;
    const auto target = std::filesystem::read_symlink(next, failure);
    if (failure || ++links > kMostLinks) {
      at = next;
    } else {
      left.insert(left.begin(), target.begin(), target.end());
    }
  }
  return at;
}

}  // namespace

Result<std::string> resolve_path(const std::string& path) {
  return with_deadline(path, kResolvePatience, [&]() -> Result<std::string> {
    auto resolved = real_path(path);
    if (resolved || resolved.error().code != ENOTCONN) return resolved;
    std::error_code failure;
    const auto absolute = std::filesystem::absolute(path, failure);
    if (failure) return system_error(failure.value(), path);
    return follow_links(absolute).string();
  });
}

Error stale_mount(const std::string& path) {
  const auto mounts = current_mounts();
  const auto holder = mounts ? mount_containing(*mounts, path) : std::nullopt;
  if (!holder || !holder->type.starts_with("fuse")) return system_error(ENOTCONN, path);
  if (holder->is_clairfs()) {
    return Error{ENOTCONN,
                 fmt::format("{0} is a stale mount: its daemon is gone; clear it with: clairfs umount {0}",
                             holder->mountpoint)};
  }
  return Error{
      ENOTCONN,
      fmt::format("{0} is a stale mount of type {1}: its daemon is gone, or reaches no server; see to "
                  "its servers, or clear it with 'fusermount3 -u -z {0}', and mount it again",
                  holder->mountpoint, holder->type)};
}

}  // namespace clairfs
