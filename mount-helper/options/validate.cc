#include "mount-helper/options/validate.h"

#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cache/base/units.h"
#include "cache/memory/ram_arena.h"
#include "mount-helper/mounts/live_mount.h"
#include "mount-helper/mounts/processes.h"
#include "mount-helper/mounts/resolve_path.h"

namespace clairfs {
namespace {

constexpr unsigned kNvmeShare = 80;  // per cent of the free space: the rest is left to whoever else writes
constexpr uint64_t kSmallestNvme = 1 << 20;  // what a store takes at least (cache/nvme/store.cc)
constexpr int kMostLinks = 40;               // that the kernel follows in one path
constexpr auto kOutputPatience = std::chrono::seconds(10);  // a busy filesystem answers within one
// Of an arena, which counts its units in 32 bits (RamArena::create).
constexpr uint64_t kRamLimit = kRamUnit << 32;
constexpr const char* kInBytes = "a SIZE without a unit is in bytes";

bool is_directory(const std::string& path) {
  struct stat attributes {};
  return ::stat(path.c_str(), &attributes) == 0 && S_ISDIR(attributes.st_mode);
}

Result<std::string> settle_source(const std::string& given) {
  auto path = resolve_path(given);
  const Error silent{ETIMEDOUT,
                     fmt::format("source {} does not answer; check the filesystem that it lies on", given)};
  if (!path && path.error().code == ETIMEDOUT) return silent;
  if (!path) return Error{path.error().code, "source " + path.error().message};
  if (const Status answers = check_answers(*path); !answers)
    return answers.error().code == ETIMEDOUT ? silent : answers.error();
  if (!is_directory(*path)) return Error{ENOTDIR, fmt::format("source {} is not a directory", given)};
  if (::access(path->c_str(), R_OK | X_OK) != 0) {
    return Error{
        EACCES,
        fmt::format("cannot read source {}: permission denied; mount as a user who can read it", *path)};
  }
  return path;
}

Result<std::string> settle_mountpoint(const std::string& given, std::span<const MountEntry> mounts) {
  auto path = resolve_path(given);
  if (!path) {
    const int code = path.error().code;
    if (code == ENOENT) {
      return Error{code,
                   fmt::format("mountpoint {} does not exist; make it with: mkdir -p {}", given, given)};
    }
    return Error{code, "mountpoint " + path.error().message};
  }
  if (const Status answers = check_answers(*path); !answers) return answers.error();
  if (!is_directory(*path)) return Error{ENOTDIR, fmt::format("mountpoint {} is not a directory", given)};
  const auto there = mount_at(mounts, *path);
  if (there && there->is_clairfs()) {
    return Error{EBUSY,
                 fmt::format("{} is already a clairfs mount of {}; unmount it first with: clairfs umount {}",
                             *path, there->source, *path)};
  }
  return path;
}

// Somebody else may have put it there, and turn it elsewhere at any time.
Status refuse_symlink(const std::string& what, const std::string& given) {
  std::string path = std::filesystem::path(given).lexically_normal().string();
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  struct stat attributes {};
  if (::lstat(path.c_str(), &attributes) != 0 || !S_ISLNK(attributes.st_mode)) return {};
  return Error{ELOOP, fmt::format("{} {} is a symlink; give the directory that it points to", what, path)};
}

// As the kernel does in /tmp, but for the links on the way too: root would write wherever somebody else's
// link leads. Links of root and of the user who mounts are followed.
Status refuse_strangers_links(const std::string& what, const std::string& given) {
  std::error_code failure;
  const auto whole = std::filesystem::absolute(given, failure);
  std::deque<std::filesystem::path> left(whole.begin(), whole.end());
  std::filesystem::path at;  // without links
  for (int links = 0; !left.empty() && links < kMostLinks;) {
    const auto name = left.front();
    left.pop_front();
    if (name.empty() || name == ".") continue;
    const auto next = name == ".." ? at.parent_path() : at / name;
    struct stat attributes {};
    if (::lstat(next.c_str(), &attributes) != 0 || !S_ISLNK(attributes.st_mode)) {
      at = next;
      continue;
    }
    if (attributes.st_uid != 0 && attributes.st_uid != ::geteuid()) {
      return Error{ELOOP, fmt::format("{} {}: {} is a symlink of user {}; give another path", what, given,
                                      next.string(), attributes.st_uid)};
    }
    const auto target = std::filesystem::read_symlink(next, failure);
    left.insert(left.begin(), target.begin(), target.end());
    ++links;
  }
  return {};
}

// What is read from there must have been written by us. A directory that is missing will be made with mode
// 0700.
Status check_own_directory(const std::string& what, const std::string& path) {
  if (const Status direct = refuse_symlink(what, path); !direct) return direct;
  struct stat attributes {};
  if (::lstat(path.c_str(), &attributes) != 0 || !S_ISDIR(attributes.st_mode)) return {};
  if (attributes.st_uid != ::geteuid()) {
    return Error{EPERM,
                 fmt::format("{} {} belongs to user {}, not to user {} who mounts; chown it or give another",
                             what, path, attributes.st_uid, ::geteuid())};
  }
  if ((attributes.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Error{EPERM, fmt::format("{} {} can be written by others (mode {:o}); chmod go-w {}", what, path,
                                    attributes.st_mode & 07777, path)};
  }
  return {};
}

// To be asked before all else, which would wait for as long as the filesystem hangs.
Status check_nvme_answers(const std::string& given) {
  const auto path = resolve_path(given);
  const Status answers = path ? check_answers(*path) : Status(path.error());
  if (answers) return {};
  const int code = answers.error().code;
  if (code == ENOTCONN) return Error{code, "NVMe directory " + answers.error().message};
  if (code != ETIMEDOUT) return {};  // the checks that follow say it better
  return Error{code,
               fmt::format("NVMe directory {} does not answer; check the filesystem that it lies on", given)};
}

// Where the directory is, or will be: its last component is made when the store is opened.
Result<std::string> settle_nvme_path(const std::string& given) {
  const auto path = resolve_path(given);
  if (path && !is_directory(*path))
    return Error{ENOTDIR, fmt::format("NVMe directory {} is not a directory", *path)};
  if (path) return path;
  if (path.error().code != ENOENT) return Error{path.error().code, "NVMe directory " + path.error().message};
  std::filesystem::path last = given;
  if (!last.has_filename()) last = last.parent_path();  // "dir/"
  const std::string name = last.filename().string();
  const std::string above = last.has_parent_path() ? last.parent_path().string() : ".";
  const auto parent = resolve_path(above);
  if (!parent && parent.error().code != ENOENT)
    return Error{parent.error().code, "NVMe directory " + parent.error().message};
  if (!parent || !is_directory(*parent) || name == "." || name == "..") {
    return Error{ENOENT,
                 fmt::format("NVMe directory {}: its parent directory is missing; mkdir -p {}, or give "
                             "another path",
                             given, above)};
  }
  return (std::filesystem::path(*parent) / name).string();
}

// What a store of an earlier mount takes there: as good as free, since it will be used again.
uint64_t bytes_of_store(const std::string& directory) {
  uint64_t bytes = 0;
  std::error_code failure;
  std::filesystem::directory_iterator entry(directory, failure);
  for (; !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure)) {
    const std::string name = entry->path().filename().string();
    struct stat attributes {};
    if (!name.starts_with("segment-") && !name.starts_with("index")) continue;
    if (::lstat(entry->path().c_str(), &attributes) == 0 && S_ISREG(attributes.st_mode))
      bytes += static_cast<uint64_t>(attributes.st_blocks) * 512;
  }
  return bytes;
}

// What a store may take at a path, in bytes.
struct StoreRoom {
  uint64_t free = 0;        // now, with what a store of an earlier mount takes there
  uint64_t filesystem = 0;  // all that the filesystem has
};

// `path` need not exist yet.
Result<StoreRoom> room_for_store(const std::string& path) {
  struct statvfs space {};
  const std::string there = is_directory(path) ? path : std::filesystem::path(path).parent_path().string();
  if (::statvfs(there.c_str(), &space) != 0)
    return system_error(errno, "free space of NVMe directory " + path);
  return StoreRoom{uint64_t{space.f_bavail} * space.f_frsize + bytes_of_store(path),
                   uint64_t{space.f_blocks} * space.f_frsize};
}

Error too_little_room(const NvmeDir& nvme, uint64_t free) {
  return Error{ENOSPC,
               fmt::format("NVMe directory {} has {} free{}; free some space or give another directory",
                           nvme.directory, format_size(free),
                           nvme.share == 0 ? "" : fmt::format(", {} % of it are too little", nvme.share))};
}

// The store reserves its index, a share of the capacity, when it is opened. So the capacity must be one
// that the disk can have.
Status settle_nvme_capacity(NvmeDir& nvme) {
  const auto room = room_for_store(nvme.directory);
  if (!room) return room.error();
  if (nvme.capacity == 0) {
    if (nvme.share == 0) nvme.share = kNvmeShare;
    nvme.capacity = room->free / 100 * nvme.share;
    if (nvme.capacity >= kSmallestNvme) return {};
    return too_little_room(nvme, room->free);
  }
  if (nvme.capacity < kSmallestNvme) {
    return Error{EINVAL, fmt::format("--nvme {}:{} is too small, give at least {}; {}", nvme.directory,
                                     format_size(nvme.capacity), format_size(kSmallestNvme), kInBytes)};
  }
  if (room->filesystem > 0 && nvme.capacity > room->filesystem) {
    return Error{EINVAL, fmt::format("--nvme {}:{} is more than its filesystem has, {} with {} free; give a "
                                     "smaller size, or none for {} % of what is free",
                                     nvme.directory, format_size(nvme.capacity),
                                     format_size(room->filesystem), format_size(room->free), kNvmeShare)};
  }
  if (nvme.capacity <= room->free) return {};
  if (room->free < kSmallestNvme) return too_little_room(nvme, room->free);
  nvme.asked = std::exchange(nvme.capacity, room->free);
  return {};
}

Status settle_nvme(NvmeDir& nvme) {
  if (const Status answers = check_nvme_answers(nvme.directory); !answers) return answers;
  if (const Status direct = refuse_symlink("NVMe directory", nvme.directory); !direct) return direct;
  if (const Status ours = refuse_strangers_links("NVMe directory", nvme.directory); !ours) return ours;
  const auto settled = settle_nvme_path(nvme.directory);
  if (!settled) return settled.error();
  nvme.directory = *settled;
  return settle_nvme_capacity(nvme);
}

Status settle_nvmes(MountOptions& options) {
  for (size_t i = 0; i < options.nvme.size(); ++i) {
    NvmeDir& nvme = options.nvme[i];
    if (const Status settled = settle_nvme(nvme); !settled) return settled;
    for (size_t j = 0; j < i; ++j) {
      if (options.nvme[j].directory == nvme.directory) {
        return Error{EINVAL, fmt::format("NVMe directory {} is given twice; name each once", nvme.directory)};
      }
    }
    if (is_within(nvme.directory, options.source)) {
      return Error{EINVAL, fmt::format("NVMe directory {} lies in the source, which is never written; take a "
                                       "directory on a local disk",
                                       nvme.directory)};
    }
    if (is_within(nvme.directory, options.mountpoint)) {
      return Error{EINVAL,
                   fmt::format("NVMe directory {} lies below the mountpoint, which will hide it; take "
                               "another directory",
                               nvme.directory)};
    }
  }
  return {};
}

// Where a path leads that need not exist yet: symlinks in its existing part are resolved.
Result<std::string> resolve_output(const std::string& path, const std::string& what) {
  auto resolved = with_deadline(path, kOutputPatience, [&]() -> Result<std::string> {
    std::error_code failure;
    const auto absolute = std::filesystem::absolute(path, failure);
    const auto there = failure ? absolute : std::filesystem::weakly_canonical(absolute, failure);
    if (failure) return Error{failure.value(), failure.message()};
    return there.string();
  });
  if (resolved) return resolved;
  Error why = resolved.error();
  if (why.code == ETIMEDOUT) why.message = "does not answer; check the filesystem that it lies on";
  if (why.code == ENOTCONN) {
    if (const auto below = resolve_path(path)) why = stale_mount(*below);
  }
  return Error{why.code, fmt::format("{} {}: {}", what, path, why.message)};
}

// Such a path, if it is where files may be written.
Result<std::string> settle_output(const std::string& path, const std::string& what,
                                  const MountOptions& options) {
  auto resolved = resolve_output(path, what);
  if (!resolved) return resolved;
  const std::string& settled = *resolved;
  if (is_within(settled, options.source)) {
    return Error{EINVAL, fmt::format("{} {} lies in the source, which is never written; take another place",
                                     what, settled)};
  }
  if (is_within(settled, options.mountpoint)) {
    return Error{EINVAL,
                 fmt::format("{} {} lies below the mountpoint, which will hide it; take another place", what,
                             settled)};
  }
  return resolved;
}

// The RAM tier is made after the scan only.
Status check_ram(MountOptions& options) {
  if (options.ram < kRamLimit) return {};
  return Error{EINVAL, fmt::format("--ram {} is too much, give less than {}", format_size(options.ram),
                                   format_size(kRamLimit))};
}

// A chunk of records is a part of what would be a chunk else.
Status check_record_chunks(MountOptions& options) {
  for (const auto& [pattern, chunk] : options.record_chunks) {
    if (chunk <= options.chunk) continue;
    return Error{
        EINVAL,
        fmt::format("--record-chunk {}={} is more than --chunk, {}; give a smaller one, or a larger --chunk",
                    pattern, format_size(chunk), format_size(options.chunk))};
  }
  return {};
}

// Neither may hide the other.
Status check_apart(const std::string& source, const std::string& mountpoint) {
  if (source == mountpoint) {
    return Error{
        EINVAL, fmt::format("source and mountpoint are both {}; the mount would hide what it serves, so take "
                            "another mountpoint",
                            source)};
  }
  if (is_within(mountpoint, source)) {
    return Error{
        EINVAL, fmt::format("mountpoint {} lies inside the source {}; the scan would enter the mount itself, "
                            "so take a mountpoint outside",
                            mountpoint, source)};
  }
  if (is_within(source, mountpoint)) {
    return Error{EINVAL,
                 fmt::format("source {} lies inside the mountpoint {}; the mount would hide it, so take "
                             "another mountpoint",
                             source, mountpoint)};
  }
  return {};
}

Status settle_catalog_dir(MountOptions& options) {
  if (options.catalog_dir.empty()) {
    return Error{ENOENT,
                 "this user has no home directory to keep the catalog in; name a place with --catalog-dir"};
  }
  const std::string what = "catalog directory";
  const auto settled = settle_output(options.catalog_dir, what, options);
  if (!settled) return settled.error();
  if (const Status direct = refuse_symlink(what, options.catalog_dir); !direct) return direct;
  if (const Status ours = refuse_strangers_links(what, options.catalog_dir); !ours) return ours;
  for (const char* part : {"", "/log", "/index", "/found"}) {
    if (const Status ours = check_own_directory(what, *settled + part); !ours) return ours;
  }
  options.catalog_dir = *settled;
  return {};
}

Status settle_log_file(MountOptions& options) {
  if (options.log_file.empty()) return {};
  const auto settled = settle_output(options.log_file, "log file", options);
  if (!settled) return settled.error();
  if (const Status ours = refuse_strangers_links("log file", options.log_file); !ours) return ours;
  const std::string above = std::filesystem::path(*settled).parent_path().string();
  if (!is_directory(above)) {
    return Error{ENOENT,
                 fmt::format("log file {}: its directory is missing: mkdir -p {}, or give another path",
                             *settled, above)};
  }
  if (is_directory(*settled))
    return Error{EISDIR, fmt::format("log file {} is a directory; give a file in it", *settled)};
  options.log_file = *settled;
  return {};
}

}  // namespace

Result<MountOptions> resolve_paths(MountOptions options, std::span<const MountEntry> mounts) {
  const auto source = settle_source(options.source);
  if (!source) return source.error();
  options.source = *source;
  const auto mountpoint = settle_mountpoint(options.mountpoint, mounts);
  if (!mountpoint) return mountpoint.error();
  options.mountpoint = *mountpoint;
  if (const Status apart = check_apart(*source, *mountpoint); !apart) return apart.error();
  for (const auto settle :
       {check_ram, check_record_chunks, settle_nvmes, settle_catalog_dir, settle_log_file}) {
    if (const Status settled = settle(options); !settled) return settled.error();
  }
  return options;
}

std::vector<std::string> mount_warnings(const MountOptions& options, uint64_t memory) {
  std::vector<std::string> lines;
  std::error_code failure;
  if (!std::filesystem::is_empty(options.mountpoint, failure) && !failure)
    lines.push_back(
        fmt::format("mountpoint {} is not empty; the mount hides what is in it", options.mountpoint));
  const auto compare = [&](const std::string& what, uint64_t wanted, uint64_t there, const char* of) {
    if (wanted <= there) return;
    lines.push_back(
        fmt::format("{} of {} is more than the {} of {}", what, format_size(wanted), format_size(there), of));
  };
  compare("--ram", options.ram, memory, "memory available; when it fills, the kernel may kill this mount");
  compare("--staging", options.staging, memory, "memory available; files pushed ahead are lost again");
  compare("--page-cache", options.page_cache, memory, "memory available; the kernel takes back what is kept");
  const auto doubt = [&](const std::string& what, uint64_t bytes) {
    if (bytes == 0 || bytes >= kPageSize) return;
    lines.push_back(fmt::format("{} of {} is less than a page, and so as good as none; {}", what,
                                format_size(bytes), kInBytes));
  };
  doubt("--ram", options.ram);
  doubt("--staging", options.staging);
  doubt("--page-cache", options.page_cache);
  for (const NvmeDir& nvme : options.nvme) {
    if (nvme.asked == 0) continue;
    lines.push_back(fmt::format("--nvme {}:{} is more than is free there; it takes {}", nvme.directory,
                                format_size(nvme.asked), format_size(nvme.capacity)));
  }
  return lines;
}

}  // namespace clairfs
