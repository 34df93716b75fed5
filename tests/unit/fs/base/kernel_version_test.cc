#include "fs/base/kernel_version.h"

#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("a kernel's version is read from its release string") {
  CHECK(parse_kernel_version("6.12.9-arch1") == KernelVersion{6, 12});
  CHECK(parse_kernel_version("6.9") == KernelVersion{6, 9});
  CHECK(parse_kernel_version("5.14.0-427.13.1.el9_4.x86_64") == KernelVersion{5, 14});
  CHECK(parse_kernel_version("6.13-rc1") == KernelVersion{6, 13});
  CHECK(parse_kernel_version("10.0.1") == KernelVersion{10, 0});
  for (const char* release : {"", "6", "6.", "6.x", ".12", "6-12", "Linux 6.12"}) {
    CAPTURE(release);
    CHECK(parse_kernel_version(release) == KernelVersion{});
  }
  CHECK(running_kernel() > KernelVersion{2, 6});
}

TEST_CASE("files are opened without a message but on the kernels where that can deadlock") {
  const auto safe = [](const char* release) {
    return zero_message_open_is_safe(parse_kernel_version(release));
  };
  for (const char* release : {"5.10.0-30-amd64", "6.1.0-18-amd64", "6.8.12", "6.13.0", "6.100.1", "7.0.0"}) {
    CAPTURE(release);
    CHECK(safe(release));
  }
  for (const char* release : {"6.9.0", "6.10.14", "6.11.0-8-generic", "6.12.9-arch1"}) {
    CAPTURE(release);
    CHECK_FALSE(safe(release));
  }
}
