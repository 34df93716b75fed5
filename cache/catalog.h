// The catalog: one immutable snapshot of the dataset's tree.
//
// Entries are numbered breadth first (FileId; the root is 0), so that the children of a directory are
// contiguous and, within it, sorted by name bytewise: a lookup is a binary search, a listing a walk over an
// array. Chunks are numbered along the regular files (ChunkId): a file of at most `chunk_size` bytes is one
// chunk, a larger one is cut into aligned pieces, an empty one has none.
//
// Symlinks are kept as symlinks, hard links are files of their own, special files are left out and counted,
// and what could not be read is reported. At most 100 bytes an entry plus the names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "cache/base/file_stamp.h"
#include "cache/base/log.h"
#include "cache/base/result.h"
#include "cache/base/types.h"

namespace clairfs {

/// A piece of a file.
struct ChunkRange {
  FileId file;
  uint64_t offset = 0;  ///< bytes from the start of the file
  uint32_t length = 0;  ///< bytes, 1 ..= chunk_size
};

/// Immutable after it was made, so thread-safe without locks.
class Catalog {
 public:
  enum class Kind : uint8_t { directory, file, symlink };

  uint32_t size() const;  ///< entries of all kinds
  uint32_t chunk_count() const;
  uint32_t chunk_size() const;   ///< bytes
  uint64_t total_bytes() const;  ///< of all regular files
  uint32_t count(Kind kind) const;
  uint64_t skipped_special() const;  ///< sockets, pipes, devices left out
  uint64_t unreadable() const;       ///< entries that could not be read during the scan
  uint64_t memory_bytes() const;     ///< that the snapshot takes, names included
  uint64_t name_bytes() const;       ///< of which names and symlink targets
  /// XXH3-64 of everything in the snapshot: equal on two nodes exactly if they see the same dataset.
  uint64_t identity() const;

  Kind kind(FileId id) const;
  std::string_view name(FileId id) const;            ///< empty for the root
  FileId parent(FileId id) const;                    ///< the root is its own parent
  std::string_view symlink_target(FileId id) const;  ///< REQUIRES: kind symlink
  FileStamp stamp(FileId id) const;
  /// st_mode, st_uid, st_gid, st_size, times (atime = mtime), st_blocks, st_ino (= id + 1), st_nlink.
  struct stat attributes(FileId id) const;
  /// Path relative to the root, without a leading '/'; "" for the root.
  std::string path(FileId id) const;

  /// Children of a directory: ids [first, first + count), sorted by name. REQUIRES: kind directory.
  struct Children {
    FileId first;
    uint32_t count = 0;
  };
  Children children(FileId directory) const;
  std::optional<FileId> lookup(FileId directory, std::string_view name) const;
  /// Resolves a relative path ("a/b", "" = root) by names only; symlinks are not followed.
  std::optional<FileId> find(std::string_view path) const;

  /// Chunks of a regular file: ids [first, first + count).
  struct Chunks {
    ChunkId first;
    uint32_t count = 0;
  };
  Chunks chunks(FileId file) const;
  ChunkRange range(ChunkId chunk) const;
};

}  // namespace clairfs
