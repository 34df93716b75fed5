#include "mount-helper/mounts/resolve_path.h"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "mount-helper/mounts/processes.h"

namespace clairfs {
namespace {

constexpr auto kResolvePatience = std::chrono::seconds(10);  // a busy filesystem answers within one

Result<std::string> real_path(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(path.c_str(), nullptr), &std::free);
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
  if (!parent) return resolved;  // below a stale mount
  return (std::filesystem::path(*parent) / absolute.filename()).string();
}

}  // namespace clairfs
