// The pages of an LMDB data file (libraries/liblmdb/mdb.c, format version 1 as 64-bit little-endian machines
// write it), read without trust: what is asked for is checked against the page's bounds first.
//
// A file is pages of one size. Pages 0 and 1 are metas; the one with the larger transaction number holds and
// names the root of the main tree. A page of a tree has a header of 16 bytes, an array of the places of its
// nodes, and the nodes: of a branch the numbers of the pages below it, of a leaf the records. A long value
// lies outside, in overflow pages that follow each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cache/base/result.h"

namespace clairfs::lmdb {

inline constexpr uint32_t kPageHeader = 16;
inline constexpr uint32_t kMetaBytes = 152;      ///< of a meta page, with its header
inline constexpr uint64_t kNoPage = UINT64_MAX;  ///< the root of an empty tree

/// MDB_db: where a database's tree is.
struct Tree {
  static constexpr uint32_t kBytes = 48;

  uint16_t flags = 0;
  uint16_t depth = 0;  ///< levels of pages; 0: empty
  uint64_t entries = 0;
  uint64_t root = kNoPage;
};

/// REQUIRES: kBytes of them.
Tree parse_tree(std::string_view bytes);

/// Why records of such a database have no place of their own each; empty: they have.
std::string_view why_unreadable(const Tree& tree);

struct Meta {
  uint32_t page_bytes = 0;
  uint64_t last_page = 0;
  uint64_t transaction = 0;
  Tree main;

  bool operator==(const Meta& other) const {
    return transaction == other.transaction && main.root == other.main.root && last_page == other.last_page;
  }
};

/// The first kMetaBytes of a meta page. Errors: EINVAL, of which the message is the cause alone.
Result<Meta> parse_meta(std::string_view start);

/// A value, or what stands for it.
struct Leaf {
  std::string_view key;
  bool tree = false;      ///< a named database: a Tree of Tree::kBytes at `offset`
  bool overflow = false;  ///< in separate pages from `page` on
  uint64_t page = 0;
  uint32_t offset = 0;  ///< in this page, where the value, or the number of its first page, begins
  uint32_t bytes = 0;   ///< of the value
};

/// A view of one page of a tree; the bytes outlive it.
class TreePage {
 public:
  enum class Kind : uint8_t { branch, leaf };

  /// All bytes of page number `number`. Errors: EINVAL with the cause, such as another page's number in it.
  static Result<TreePage> parse(std::string_view bytes, uint64_t number, Kind kind);

  std::string_view bytes() const { return bytes_; }
  uint32_t nodes() const { return nodes_; }
  /// Nothing if the node does not lie within the page. REQUIRES: node < nodes(), and a page of that kind.
  std::optional<uint64_t> child(uint32_t node) const;
  std::optional<Leaf> leaf(uint32_t node) const;

 private:
  TreePage(std::string_view bytes, uint32_t nodes) : bytes_(bytes), nodes_(nodes) {}
  std::optional<uint32_t> place(uint32_t node) const;

  std::string_view bytes_;
  uint32_t nodes_;
};

}  // namespace clairfs::lmdb
