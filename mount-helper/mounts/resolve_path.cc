#include "mount-helper/mounts/resolve_path.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "fs/base/mountinfo.h"
#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kResolvePatience = std::chrono::seconds(10);  // a busy filesystem answers within one

// A slash at the end would ask for the right to enter, which root has not in a user's mount that he may end.
Result<std::string> real_path(const std::string& path) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(plain.c_str(), nullptr), &std::free);
  if (!resolved) return system_error(errno, path);
  return std::string(resolved.get());
}

}  // namespace

Result<std::string> resolve_path(const std::string& path) {
  auto resolved = with_deadline(path, kResolvePatience, [&] { return real_path(path); });
  if (resolved || resolved.error().code != ENOTCONN) return resolved;
  std::error_code failure;
  std::filesystem::path absolute = std::filesystem::absolute(path, failure).lexically_normal();
  if (failure) return system_error(failure.value(), path);
  if (!absolute.has_filename()) absolute = absolute.parent_path();  // "dir/"
  const auto parent = real_path(absolute.parent_path());
  if (!parent) return stale_mount(absolute);
  return (std::filesystem::path(*parent) / absolute.filename()).string();
}

Error stale_mount(const std::string& path) {
  const auto mounts = current_mounts();
  const auto holder = mounts ? mount_containing(*mounts, path) : std::nullopt;
  const bool found = holder && holder->type.starts_with("fuse");  // else a link leads there
  const std::string& mountpoint = found ? holder->mountpoint : path;
  if (!found || holder->is_clairfs()) {
    return Error{ENOTCONN,
                 fmt::format("{0} is a stale mount: its daemon is gone; clear it with: clairfs umount {0}",
                             mountpoint)};
  }
  return Error{ENOTCONN, fmt::format("{0} is a stale mount of type {1}: its daemon is gone; clear it with "
                                     "'fusermount3 -u -z {0}', and mount it again",
                                     mountpoint, holder->type)};
}

}  // namespace clairfs
