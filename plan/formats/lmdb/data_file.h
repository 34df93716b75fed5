// Walks the trees of an LMDB data file, level by level, with all reads of a level under way together.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/formats/dataset.h"
#include "plan/formats/lmdb/page.h"

namespace clairfs::lmdb {

/// For one thread. All errors are EINVAL with the cause alone as the message, or what a read returned. A file
/// that is torn or made up costs no more than reading it once, and 32 times what is not a hole of it.
class DataFile {
 public:
  /// The call-back for a page.
  struct Visited {
    TreePage::Kind kind;
    uint64_t number;  ///< the page's own
    uint64_t rank;    ///< of its level, in the order of the keys
    const TreePage& page;
  };
  using Visit = std::function<Status(const Visited& visited)>;

  /// Reads the meta pages. `source` outlives it.
  static Result<DataFile> open(const DatasetSource& source, FileId file);

  const Meta& meta() const { return meta_; }
  ByteRange page_range(uint64_t page) const { return {file_, page * meta_.page_bytes, meta_.page_bytes}; }
  /// The whole pages of a tree from `page` on that `bytes` lie in; nothing if the file has no such.
  bool has_pages(uint64_t page, uint64_t bytes = 1) const;
  /// Pages that the file has and that its meta page knows, so no tree has more.
  uint64_t pages() const;

  /// Calls `visit` for every page of the tree, a level at a time: branches in the order of the keys, leaves
  /// in that of the file. They may be nearly all of the file, and are read once, from its beginning to its
  /// end.
  Status walk(const Tree& tree, const Visit& visit) const;

  /// Whether no transaction was written since open(): else what was read may be of two.
  Status check_unchanged() const;

 private:
  DataFile(const DatasetSource& source, FileId file, const Meta& meta)
      : source_(&source), file_(file), meta_(meta) {}
  /// A page to read, and its rank in the level.
  struct Wanted {
    uint64_t page;
    uint64_t rank;
  };
  using Take = std::function<Status(const Wanted& page, std::string_view bytes)>;
  Status read_pages(std::span<const Wanted> pages, const Take& take) const;
  Status read_batch(std::span<const Wanted> pages, const Take& take) const;

  const DatasetSource* source_;
  FileId file_;
  Meta meta_;
};

}  // namespace clairfs::lmdb
