#include "mount-helper/inspect/saved_files.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cache/base/escaped.h"
#include "cache/base/fd.h"
#include "cache/base/plural.h"
#include "cache/base/text.h"
#include "cache/base/units.h"
#include "cache/catalog/file.h"
#include "cache/nvme/directory.h"
#include "fs/base/mountinfo.h"
#include "mount-helper/log/logging.h"
#include "plan/formats/index/saved_index.h"
#include "plan/inference/saved_orders.h"

namespace clairfs {
namespace {

namespace fs = std::filesystem;
using SystemTime = std::chrono::system_clock::time_point;

// Files of a folder with their attributes; what cannot be looked at is left out.
template <class Visit>
Status for_each_entry(const std::string& folder, const Visit& visit) {
  std::error_code failure;
  fs::directory_iterator entry(folder, failure);
  if (failure && failure.value() == ENOENT) return {};
  for (; !failure && entry != fs::directory_iterator(); entry.increment(failure)) {
    struct stat attributes {};
    if (::lstat(entry->path().c_str(), &attributes) == 0 && S_ISREG(attributes.st_mode))
      visit(entry->path(), attributes);
  }
  if (failure) return system_error(failure.value(), folder);
  return {};
}

SavedFile described(SavedFile::Kind kind, const fs::path& path, const struct stat& attributes) {
  SavedFile file;
  file.kind = kind;
  file.path = path;
  file.bytes = static_cast<uint64_t>(attributes.st_blocks) * 512;
  file.used = std::chrono::system_clock::from_time_t(std::max(attributes.st_mtime, attributes.st_atime));
  return file;
}

bool is_mounted(const std::vector<MountEntry>& mounts, const std::string& source) {
  return std::any_of(mounts.begin(), mounts.end(),
                     [&](const MountEntry& mount) { return mount.is_clairfs() && mount.source == source; });
}

bool is_locked(const std::string& path) {
  const Fd lock(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  return lock && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void add_catalog(std::vector<SavedFile>& files, const fs::path& path, const struct stat& attributes,
                 const std::vector<MountEntry>& mounts) {
  const std::string name = path.filename();
  if (!name.starts_with("catalog-")) return;
  const auto catalog = load_catalog(path);
  SavedFile file =
      described(catalog ? SavedFile::Kind::catalog : SavedFile::Kind::temporary, path, attributes);
  file.of = catalog ? std::string((*catalog)->source()) : "unreadable, or being written";
  file.in_use = catalog && is_mounted(mounts, file.of);
  files.push_back(std::move(file));
}

// The first bytes of a file, fewer where it is shorter; none where it cannot be read.
std::vector<std::byte> beginning_of(const std::string& path, size_t most) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::vector<std::byte> bytes(most);
  const ssize_t n = file ? ::pread(file.get(), bytes.data(), bytes.size(), 0) : -1;
  bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return bytes;
}

void add_index(std::vector<SavedFile>& files, const fs::path& path, const struct stat& attributes,
               const std::vector<MountEntry>& mounts) {
  if (path.filename().string().find(".idx") == std::string::npos) return;
  constexpr size_t kStart = kIndexStartBytes + sizeof(uint64_t) + PATH_MAX;  // with the source's path
  const auto source = indexed_source(beginning_of(path, kStart));
  SavedFile file = described(source ? SavedFile::Kind::index : SavedFile::Kind::temporary, path, attributes);
  file.of = source ? *source : "of another version, or being written";
  file.in_use = source && is_mounted(mounts, file.of);
  files.push_back(std::move(file));
}

// What was found of a dataset, for later mounts; or the order of a found plan, "PID@HOST.list": its daemon
// removes it, unless it was killed.
void add_found_order(std::vector<SavedFile>& files, const fs::path& path, const struct stat& attributes,
                     const std::vector<MountEntry>& mounts) {
  const std::string name = path.filename();
  if (name.starts_with("orders-")) {
    constexpr size_t kStart = 64 + PATH_MAX;  // a header, and the source's path
    SavedFile file = described(SavedFile::Kind::found, path, attributes);
    const auto bytes = beginning_of(path, kStart);
    const auto source = source_of_saved_orders({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    if (!source || name.ends_with(".tmp")) file.kind = SavedFile::Kind::temporary;
    file.of = source ? *source : "of another version, or being written";
    file.in_use = source && is_mounted(mounts, file.of);
    files.push_back(std::move(file));
    return;
  }
  const auto pid = parse_whole<pid_t>(name.substr(0, name.find('@')));
  if (!pid) return;
  SavedFile file = described(SavedFile::Kind::temporary, path, attributes);
  file.of = "order of a found plan";
  const bool here = name.find("@" + short_host_name() + ".") != std::string::npos;
  file.in_use = here && (::kill(*pid, 0) == 0 || errno == EPERM);
  files.push_back(std::move(file));
}

// The name of the log of a mount, without what tells hosts and rotations apart: "mnt-data".
std::string mount_of_log(const std::string& name) {
  return name.substr(0, std::min(name.rfind('@'), name.rfind(".log")));
}

void add_log(std::vector<SavedFile>& files, const fs::path& path, const struct stat& attributes,
             const std::vector<MountEntry>& mounts) {
  const std::string name = path.filename();
  if (name.find(".log") == std::string::npos) return;
  SavedFile file = described(SavedFile::Kind::log, path, attributes);
  file.of = mount_of_log(name);
  file.in_use = std::any_of(mounts.begin(), mounts.end(), [&](const MountEntry& mount) {
    std::string point = mount.mountpoint.substr(std::min<size_t>(1, mount.mountpoint.size()));
    std::replace(point.begin(), point.end(), '/', '-');
    return mount.is_clairfs() && file.of.starts_with(point);
  });
  files.push_back(std::move(file));
}

bool is_of_a_store(const std::string& name) {
  return name == "lock" || name.starts_with("index") || name.starts_with("segment-");
}

Status add_nvme(std::vector<SavedFile>& files, const std::string& folder) {
  SavedFile sum;
  sum.kind = SavedFile::Kind::nvme;
  sum.path = folder;
  const Status listed = for_each_entry(folder, [&](const fs::path& path, const struct stat& attributes) {
    if (!is_of_a_store(path.filename())) return;
    const SavedFile file = described(SavedFile::Kind::nvme, path, attributes);
    sum.bytes += file.bytes;
    sum.used = std::max(sum.used, file.used);
  });
  if (!listed || sum.bytes == 0) return listed;
  sum.of = nvme_directory_dataset(folder);
  sum.in_use = is_locked(folder + "/lock");
  files.push_back(std::move(sum));
  return {};
}

const char* kind_name(SavedFile::Kind kind) {
  switch (kind) {
    case SavedFile::Kind::catalog:
      return "catalog";
    case SavedFile::Kind::index:
      return "index";
    case SavedFile::Kind::log:
      return "log";
    case SavedFile::Kind::found:
      return "found";
    case SavedFile::Kind::nvme:
      return "nvme";
    case SavedFile::Kind::temporary:
      break;
  }
  return "remains";
}

}  // namespace

Result<std::vector<SavedFile>> saved_files(const std::string& catalog_dir,
                                           const std::vector<std::string>& nvme) {
  const auto mounts = current_mounts();
  if (!mounts) return mounts.error();
  std::vector<SavedFile> files;
  using Add = std::function<void(const fs::path&, const struct stat&)>;
  const std::pair<const char*, Add> folders[] = {
      {"", [&](const fs::path& path, const struct stat& at) { add_catalog(files, path, at, *mounts); }},
      {"/index", [&](const fs::path& path, const struct stat& at) { add_index(files, path, at, *mounts); }},
      {"/log", [&](const fs::path& path, const struct stat& at) { add_log(files, path, at, *mounts); }},
      {"/found",
       [&](const fs::path& path, const struct stat& at) { add_found_order(files, path, at, *mounts); }},
  };
  for (const auto& [folder, add] : folders) {
    if (const Status listed = for_each_entry(catalog_dir + folder, add); !listed) return listed.error();
  }
  for (const std::string& folder : nvme) {
    if (const Status added = add_nvme(files, folder); !added) return added.error();
  }
  return files;
}

std::vector<SavedFile> outdated(const std::vector<SavedFile>& files, std::chrono::hours age, SystemTime now) {
  std::vector<SavedFile> old;
  std::copy_if(files.begin(), files.end(), std::back_inserter(old),
               [&](const SavedFile& file) { return !file.in_use && file.used + age <= now; });
  return old;
}

Status remove_saved(const SavedFile& file) {
  if (file.kind != SavedFile::Kind::nvme) {
    if (::unlink(file.path.c_str()) == 0 || errno == ENOENT) return {};
    return system_error(errno, "remove " + file.path);
  }
  const auto directory = lock_nvme_directory(file.path);  // a mount that begins now waits for nothing
  if (!directory) return directory.error();
  Status removed;
  const Status listed = for_each_entry(file.path, [&](const fs::path& path, const struct stat&) {
    if (is_of_a_store(path.filename()) && ::unlink(path.c_str()) != 0 && removed)
      removed = system_error(errno, "remove " + path.string());
  });
  return listed ? removed : listed;
}

std::string saved_table(std::vector<SavedFile> files, SystemTime now) {
  std::sort(files.begin(), files.end(),
            [](const SavedFile& a, const SavedFile& b) { return a.bytes > b.bytes; });
  uint64_t bytes = 0;
  std::string out =
      fmt::format("{:<8} {:>10} {:>9}  {:<6}  {}\n", "KIND", "SIZE", "DAYS", "", "OF, AND WHERE");
  for (const SavedFile& file : files) {
    const auto days = std::chrono::duration_cast<std::chrono::hours>(now - file.used).count() / 24;
    out += fmt::format("{:<8} {:>10} {:>9}  {:<6}  {}{}\n", kind_name(file.kind), format_size(file.bytes),
                       std::max<int64_t>(days, 0), file.in_use ? "in use" : "",
                       file.of.empty() ? "" : escaped(file.of) + "  ", escaped(file.path));
    bytes += file.bytes;
  }
  return out + fmt::format("{}, {}\n", pluralize(files.size(), "entry", "entries"), format_size(bytes));
}

}  // namespace clairfs
