// What tells that a source file is still the one the catalog describes.
#pragma once

#include <cstdint>

namespace clairfs {

/// Size and modification time. A file whose stamp differs from the catalog's is never read as if it were the
/// same file.
struct FileStamp {
  uint64_t size = 0;     ///< bytes
  int64_t mtime_ns = 0;  ///< nanoseconds since 1970
  bool operator==(const FileStamp&) const = default;
};

}  // namespace clairfs
