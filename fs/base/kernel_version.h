// The version of the running kernel, where behaviour depends on it.
#pragma once

#include <compare>
#include <string_view>

namespace clairfs {

struct KernelVersion {
  int major = 0;
  int minor = 0;
  auto operator<=>(const KernelVersion&) const = default;
};

/// From a release string such as "6.12.9-arch1"; 0.0 if it cannot be read.
KernelVersion parse_kernel_version(std::string_view release);
KernelVersion running_kernel();

/// Kernels 6.9 to 6.12 without "fuse: fix readahead reclaim deadlock" can deadlock when pages of a file
/// opened without a message are reclaimed.
constexpr bool zero_message_open_is_safe(KernelVersion v) {
  return v < KernelVersion{6, 9} || v >= KernelVersion{6, 13};
}

}  // namespace clairfs
