#include "mount-helper/job_place.h"

#include <cerrno>
#include <string_view>

#include <fmt/format.h>

namespace clairfs {
namespace {

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

Error shared_mount_point(const std::string& mountpoint) {
  return {EBUSY,
          fmt::format("{0} is a clairfs mount already; if it is that of another node of this job on the same "
                      "machine, write {{rank}} where their paths are to differ, as in '{0}-{{rank}}'",
                      mountpoint)};
}

}  // namespace clairfs
