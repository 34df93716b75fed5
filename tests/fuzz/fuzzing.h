// What the fuzz targets share. A target that finds something wrong ends the process with a word on what.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cache/base/fd.h"

namespace clairfs::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: does not hold: %s\n", what);
  std::abort();
}

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A file of these bytes in memory, with a path.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    const ssize_t written = ::pwrite(fd_.get(), bytes.data(), bytes.size(), 0);
    require(written == static_cast<ssize_t>(bytes.size()), "memory for a file");
  }
  std::string path() const { return fmt::format("/proc/self/fd/{}", fd_.get()); }

 private:
  const Fd fd_;
};

}  // namespace clairfs::fuzz
