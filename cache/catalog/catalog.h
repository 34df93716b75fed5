// The catalog: one immutable snapshot of the dataset's tree.
//
// Entries are numbered breadth first (FileId; the root is 0), so that the children of a directory are
// contiguous and, within it, sorted by name bytewise: a lookup is a binary search, a listing a walk over an
// array. Chunks are numbered along the regular files (ChunkId): a file of at most its chunk_size() is one
// chunk, a larger one is cut into aligned pieces, an empty one has none. Files of records have smaller chunks
// than others (record_chunks.h).
//
// Symlinks are kept as symlinks, hard links are files of their own, special files are left out and counted,
// and what could not be read is reported. At most 100 bytes an entry plus the names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/stat.h>

#include "cache/base/fd.h"
#include "cache/base/file_stamp.h"
#include "cache/base/result.h"
#include "cache/base/types.h"

namespace clairfs {

namespace catalog_image {
struct Header;
struct Row;
}  // namespace catalog_image

/// A piece of a file.
struct ChunkRange {
  FileId file;
  uint64_t offset = 0;  ///< bytes from the start of the file
  uint32_t length = 0;  ///< bytes, 1 ..= chunk_size(file)
};

/// Immutable after it was made, so thread-safe without locks.
class Catalog {
 public:
  enum class Kind : uint8_t { directory, file, symlink };

  uint32_t size() const;  ///< entries of all kinds
  uint32_t chunk_count() const;
  uint32_t largest_chunk() const;  ///< bytes; no file has larger ones
  uint64_t total_bytes() const;    ///< of all regular files
  uint32_t count(Kind kind) const;
  uint64_t skipped_special() const;  ///< sockets, pipes, devices left out
  uint64_t unreadable() const;       ///< entries that could not be read during the scan
  uint64_t memory_bytes() const;     ///< that the snapshot takes, names included
  uint64_t name_bytes() const;       ///< of which names and symlink targets, each stored once
  /// XXH3-64 of the chunk sizes, the tree of names, all modes, the files' sizes and mtimes and the symlinks'
  /// targets: equal on two nodes that see the same dataset, wherever each has it mounted. Owners, inode
  /// numbers, ctimes and the directories' own mtimes and sizes are not part of it.
  uint64_t identity() const;
  /// Absolute path of the source on the node that scanned it.
  std::string_view source() const;

  Kind kind(FileId id) const;
  /// Empty for the root. The byte after the last is NUL, so that data() may be handed to a system call.
  std::string_view name(FileId id) const;
  FileId parent(FileId id) const;                    ///< the root is its own parent
  std::string_view symlink_target(FileId id) const;  ///< REQUIRES: kind symlink
  FileStamp stamp(FileId id) const;
  /// st_mode, st_uid, st_gid, st_size, times (atime = mtime), st_blocks, st_ino (= id + 1), st_nlink.
  struct stat attributes(FileId id) const;
  /// Besides the attributes, the next mount compares these to see whether the source has changed.
  struct SourceState {
    uint64_t inode = 0;
    int64_t ctime_ns = 0;     ///< nanoseconds since 1970
    bool incomplete = false;  ///< a directory not all of which could be read
  };
  SourceState source_state(FileId id) const;
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
  /// Bytes of the file's chunks, but of the last.
  uint32_t chunk_size(FileId file) const;
  /// The chunk that holds a byte of the file. REQUIRES: the file has that byte.
  ChunkId chunk_at(FileId file, uint64_t offset) const {
    return ChunkId(chunks(file).first.value + static_cast<uint32_t>(offset / chunk_size(file)));
  }
  /// REQUIRES: chunk < chunk_count(). Costs a binary search.
  ChunkRange range(ChunkId chunk) const;

  /// The whole snapshot as bytes: what the saved file holds and what is sent to other nodes. image() is valid
  /// as long as the catalog.
  std::span<const std::byte> image() const { return {image_.data(), image_.size()}; }
  std::vector<std::byte> serialize() const { return {image().begin(), image().end()}; }
  /// Copies `bytes` (or takes over a mapping that no other process can write to, and leaves it where it is if
  /// it is damaged) and verifies the checksum and every offset, index and name in it, so that no input can
  /// make the catalog read outside it or leave the source. Errors: EBADMSG with what is wrong; ENOMEM.
  static Result<std::shared_ptr<const Catalog>> deserialize(std::span<const std::byte> bytes);
  static Result<std::shared_ptr<const Catalog>> adopt(Mapping&& image);

 private:
  friend class CatalogBuilder;
  /// REQUIRES: a well-formed image.
  explicit Catalog(Mapping image);
  std::string_view text(uint32_t string) const;

  // Constant after construction; the pointers lead into image_.
  Mapping image_;
  const catalog_image::Header* header_;
  const catalog_image::Row* rows_;  ///< size() + 1, the last only bounds the children of the one before
  const uint32_t* chunk_start_;     ///< size() + 1: chunks of all entries before
  const uint64_t* string_start_;    ///< strings + 1
  const char* characters_;
};

/// Bytes of a chunk on average; 0 if there is none.
inline uint64_t mean_chunk_bytes(const Catalog& catalog) {
  return catalog.chunk_count() == 0 ? 0 : catalog.total_bytes() / catalog.chunk_count();
}

}  // namespace clairfs
