#include "mount-helper/job_place.h"

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <xxhash.h>

#include "mount-helper/mountinfo.h"

namespace clairfs {
namespace {

// A node that has claimed its mount point mounts it within milliseconds, on a busy machine within seconds.
constexpr std::chrono::seconds kUntilMounted(10);
constexpr std::chrono::milliseconds kBetweenLooks(20);

// In the abstract namespace: nothing is left behind, however the process ends.
bool bind_name(const Fd& socket, const std::string& path) {
  const std::string name = fmt::format("clairfs mount point {:016x}", XXH3_64bits(path.data(), path.size()));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), length) == 0;
}

void fill_in(std::string& path, Rank rank) {
  constexpr std::string_view kPlaceholder = "{rank}";
  const std::string number = std::to_string(rank.value);
  for (size_t at = path.find(kPlaceholder); at != std::string::npos; at = path.find(kPlaceholder, at)) {
    path.replace(at, kPlaceholder.size(), number);
    at += number.size();
  }
}

}  // namespace

Result<MountOptions> for_place(MountOptions options, const MpiPlace& place) {
  if (place.size > 1 && !options.foreground) {
    return Error{EINVAL,
                 fmt::format("this is one of {} nodes of a job, which end when their launcher does: add -f, "
                             "and end the launcher's line with & to go on",
                             place.size)};
  }
  for (std::string* path : {&options.source, &options.mountpoint, &options.catalog_dir, &options.log_file}) {
    fill_in(*path, place.self);
  }
  for (NvmeDir& nvme : options.nvme) fill_in(nvme.directory, place.self);
  return options;
}

Result<Fd> claim_mount_point(const std::string& mountpoint) {
  const auto path = resolve_path(mountpoint);
  if (!path) return Fd();
  Fd claim(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!claim) return system_error(errno, "socket");
  const auto deadline = std::chrono::steady_clock::now() + kUntilMounted;
  for (;;) {
    const bool bound = bind_name(claim, *path);
    const auto mounts = current_mounts();
    const auto there = mounts ? mount_at(*mounts, *path) : std::nullopt;
    if (there && there->is_clairfs()) {
      return Error{EBUSY,
                   fmt::format("{0} is a clairfs mount already; if it is left from an earlier job, clear it "
                               "with: clairfs umount {0}; if it is that of another node of this job on the "
                               "same machine, write {{rank}} where their paths are to differ, as in "
                               "'{0}-{{rank}}'",
                               mountpoint)};
    }
    if (bound) return claim;
    if (std::chrono::steady_clock::now() > deadline) return Fd();
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace clairfs
