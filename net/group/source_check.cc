#include "net/group/source_check.h"

#include <cerrno>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "cache/base/checksum.h"
#include "cache/base/escaped.h"
#include "cache/io/open_below.h"

namespace clairfs {
namespace {

Error differs(const Catalog& catalog, const std::string& path, const std::string& how) {
  return Error{
      ESTALE,
      fmt::format("the source on this node is not the one that the job has scanned ({}): {}: {}; mount "
                  "the same dataset on all nodes",
                  escaped(catalog.source()), escaped(path), how)};
}

std::string time_text(int64_t mtime_ns) {
  const std::chrono::sys_time<std::chrono::nanoseconds> time{std::chrono::nanoseconds(mtime_ns)};
  return fmt::format("{:%F %T} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(
                                         std::chrono::floor<std::chrono::seconds>(time)))) +
         fmt::format(" and {} ns", mtime_ns % 1000000000);
}

// The file that the `i`-th draw hits, or the next one after it.
std::optional<FileId> draw(const Catalog& catalog, unsigned i) {
  uint64_t seed[] = {catalog.identity(), i};
  const iovec memory{seed, sizeof(seed)};
  const uint64_t start = xxh3_64({&memory, 1});
  for (uint32_t k = 0; k < catalog.size(); ++k) {
    const FileId id(static_cast<uint32_t>((start + k) % catalog.size()));
    if (catalog.kind(id) == Catalog::Kind::file) return id;
  }
  return std::nullopt;
}

Status check_file(const Catalog& catalog, int source_fd, FileId id) {
  const std::string path = catalog.path(id);
  const auto file = open_below(source_fd, path, O_PATH | O_NOFOLLOW);
  struct stat here {};
  if (!file) return differs(catalog, path, file.error().message);
  if (::fstat(file->get(), &here) != 0) return differs(catalog, path, system_error(errno, "stat").message);
  if (!S_ISREG(here.st_mode)) return differs(catalog, path, "not a regular file here");
  const FileStamp there = catalog.stamp(id);
  if (static_cast<uint64_t>(here.st_size) != there.size)
    return differs(catalog, path, fmt::format("{} bytes here, {} there", here.st_size, there.size));
  const int64_t mtime = stamp_nanoseconds(here.st_mtim.tv_sec, here.st_mtim.tv_nsec);
  if (mtime != there.mtime_ns) {
    return differs(catalog, path,
                   fmt::format("modified {} here, {} there", time_text(mtime), time_text(there.mtime_ns)));
  }
  return {};
}

}  // namespace

Status check_source(const Catalog& catalog, int source_fd) {
  struct stat root {};
  if (::fstat(source_fd, &root) != 0) return differs(catalog, "/", system_error(errno, "stat").message);
  if (!S_ISDIR(root.st_mode)) return differs(catalog, "/", "not a directory here");
  for (unsigned i = 0; i < kCheckedFiles; ++i) {
    const auto file = draw(catalog, i);
    if (!file) break;
    if (Status same = check_file(catalog, source_fd, *file); !same) return same;
  }
  return {};
}

}  // namespace clairfs
