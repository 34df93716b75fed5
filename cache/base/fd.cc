#include "cache/base/fd.h"

#include <cerrno>
#include <string>

namespace clairfs {

Result<Mapping> Mapping::anonymous(size_t size) {
  if (size == 0) return Mapping();
  void* data =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return system_error(errno, "map " + std::to_string(size) + " bytes of memory");
  return Mapping(data, size);
}

}  // namespace clairfs
