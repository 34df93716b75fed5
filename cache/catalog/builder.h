// Makes a catalog from entries given breadth first.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "cache/catalog/catalog.h"
#include "cache/catalog/image.h"
#include "cache/catalog/record_chunks.h"

namespace clairfs {

/// The attributes of an entry, as the source has them.
struct SourceAttributes {
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  uint64_t size = 0;
  uint64_t inode = 0;
  uint32_t mode = 0;  ///< as st_mode
  uint32_t uid = 0;
  uint32_t gid = 0;
  bool operator==(const SourceAttributes&) const = default;
};
/// Times outside of what 64 bits of nanoseconds hold (years 1677 to 2262) are moved to the nearer end.
SourceAttributes source_attributes(const struct stat& from);

/// Each string stored once, ended by NUL. Open addressing over XXH3-64; not thread-safe.
class StringTable {
 public:
  uint32_t intern(std::string_view text);
  std::string_view text(uint32_t string) const {
    return {characters_.data() + starts_[string], starts_[string + 1] - starts_[string] - 1};
  }
  const std::vector<uint64_t>& starts() const { return starts_; }
  const std::string& characters() const { return characters_; }

 private:
  void grow();

  std::string characters_;
  std::vector<uint64_t> starts_ = {0};
  std::vector<uint32_t> slots_;  ///< string + 1, or 0
};

/// Not thread-safe. The root first, then level by level, the children of one directory together and sorted
/// bytewise, directories in the order in which they were added.
class CatalogBuilder {
 public:
  /// `source`: absolute path, kept for the saved file. `chunk_size`: of files that `records` says nothing of,
  /// and the most for all. REQUIRES: chunk_size > 0.
  CatalogBuilder(std::string_view source, uint32_t chunk_size, size_t expected_entries,
                 RecordChunks records = RecordChunks());

  /// The next id. The root's parent is 0 and its name empty.
  FileId add(FileId parent, std::string_view name, const SourceAttributes& attributes);
  /// REQUIRES: what was added last is a symlink, or a directory.
  void set_target(std::string_view target);
  void set_incomplete() { rows_.back().extra = 1; }

  /// Errors: EOVERFLOW when there are more chunks than a ChunkId can number; ENOMEM.
  Result<std::shared_ptr<const Catalog>> finish(uint64_t skipped_special, uint64_t unreadable);

 private:
  std::string path_of(uint32_t entry) const;
  void choose_chunk_sizes();
  Status number_chunks(std::vector<uint32_t>& chunk_start);
  void link_children();

  const RecordChunks records_;
  catalog_image::Header header_;
  std::vector<catalog_image::Row> rows_;
  StringTable strings_;
};

}  // namespace clairfs
