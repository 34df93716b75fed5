#include "cache/base/fd.h"

#include <cerrno>
#include <string>

namespace clairfs {

Result<size_t> read_fully(int fd, std::span<std::byte> to, uint64_t offset, const std::string& what) {
  size_t done = 0;
  while (done < to.size()) {
    const ssize_t n = ::pread(fd, to.data() + done, to.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return system_error(errno, what);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return done;
}

Status write_fully(int fd, std::span<const std::byte> from, uint64_t offset, const std::string& what) {
  for (size_t done = 0; done < from.size();) {
    const ssize_t n = ::pwrite(fd, from.data() + done, from.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return system_error(n < 0 ? errno : ENOSPC, what);
    done += static_cast<size_t>(n);
  }
  return {};
}

Result<Mapping> Mapping::anonymous(size_t size) {
  if (size == 0) return Mapping();
  void* data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return system_error(errno, "map " + std::to_string(size) + " bytes of memory");
  return Mapping(data, size);
}

}  // namespace clairfs
