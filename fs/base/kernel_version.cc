#include "fs/base/kernel_version.h"

#include <charconv>

#include <sys/utsname.h>

namespace clairfs {

KernelVersion parse_kernel_version(std::string_view release) {
  KernelVersion version;
  const char* end = release.data() + release.size();
  const auto major = std::from_chars(release.data(), end, version.major);
  if (major.ec != std::errc() || major.ptr == end || *major.ptr != '.') return {};
  if (std::from_chars(major.ptr + 1, end, version.minor).ec != std::errc()) return {};
  return version;
}

KernelVersion running_kernel() {
  utsname names{};
  return ::uname(&names) == 0 ? parse_kernel_version(names.release) : KernelVersion{};
}

}  // namespace clairfs
