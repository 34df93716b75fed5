// A file's size and times, which tell whether it is still the file that the catalog describes.
#pragma once

#include <cstdint>
#include <limits>

namespace clairfs {

/// A time in nanoseconds, as a stamp has it. Times that 64 bits cannot hold (after 2262, before 1677) become
/// the nearest that they can.
constexpr int64_t stamp_nanoseconds(int64_t seconds, int64_t nanoseconds) {
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max() / kSecond - 1;
  if (seconds > kLast) return std::numeric_limits<int64_t>::max();
  if (seconds < -kLast) return std::numeric_limits<int64_t>::min();
  return seconds * kSecond + nanoseconds;
}

/// Size and modification time. A file whose stamp differs from the catalog's is never read as if it were the
/// same file.
struct FileStamp {
  uint64_t size = 0;     ///< bytes
  int64_t mtime_ns = 0;  ///< nanoseconds since 1970
  bool operator==(const FileStamp&) const = default;
};

}  // namespace clairfs
