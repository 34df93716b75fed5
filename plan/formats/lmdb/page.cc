#include "plan/formats/lmdb/page.h"

#include <bit>
#include <cerrno>

#include <fmt/format.h>

namespace clairfs::lmdb {
namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE;
constexpr uint32_t kVersion = 1;
constexpr uint32_t kDevelopersVersion = 999;

enum PageFlag : uint16_t { kBranch = 0x01, kLeaf = 0x02, kMeta = 0x08, kFixedKeys = 0x20, kSubPage = 0x40 };
enum NodeFlag : uint16_t { kBigData = 0x01, kSubData = 0x02, kDupData = 0x04 };
enum TreeFlag : uint16_t { kDupSort = 0x04, kDupFixed = 0x10 };

constexpr uint32_t kNodeHeader = 8;
constexpr uint32_t kPageFlagsAt = 10;

uint64_t number_at(std::string_view bytes, size_t at, unsigned width) {
  uint64_t number = 0;
  for (unsigned i = 0; i < width; ++i) number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return number;
}
uint16_t u16(std::string_view bytes, size_t at) {
  return static_cast<uint16_t>(number_at(bytes, at, 2));
}
uint32_t u32(std::string_view bytes, size_t at) {
  return static_cast<uint32_t>(number_at(bytes, at, 4));
}
uint64_t u64(std::string_view bytes, size_t at) {
  return number_at(bytes, at, 8);
}

Error bad(std::string why) {
  return {EINVAL, std::move(why)};
}

}  // namespace

Tree parse_tree(std::string_view bytes) {
  return {u16(bytes, 4), u16(bytes, 6), u64(bytes, 32), u64(bytes, 40)};
}

std::string_view why_unreadable(const Tree& tree) {
  if ((tree.flags & (kDupSort | kDupFixed)) == 0) return "";
  return "has several values a key (MDB_DUPSORT), which lie within each other's pages; want a database "
         "without, or format=ranges";
}

Result<Meta> parse_meta(std::string_view start) {
  if (start.size() < kMetaBytes) return bad("is too short for an LMDB data file");
  const std::string_view meta = start.substr(kPageHeader);
  if (u32(meta, 0) != kMagic) {
    if (u32(start, kPageHeader - 4) == kMagic)
      return bad("was written by a 32-bit program; copy it by mdb_dump and mdb_load");
    return bad("is no LMDB data file, or of a machine with another byte order");
  }
  const uint32_t version = u32(meta, 4);
  if (version == kDevelopersVersion)
    return bad("was written by a development version of LMDB, whose format is not settled");
  if (version != kVersion) return bad(fmt::format("has the unknown LMDB format version {}", version));
  if ((u16(start, kPageFlagsAt) & kMeta) == 0) return bad("has no meta page where one should be: it is torn");
  Meta parsed;
  parsed.page_bytes = u32(meta, 24);  // kept in the entry of the tree of free pages
  if (!std::has_single_bit(parsed.page_bytes) || parsed.page_bytes < 512 || parsed.page_bytes > (32 << 10))
    return bad(fmt::format("has pages of {} bytes, which LMDB never writes", parsed.page_bytes));
  parsed.main = parse_tree(meta.substr(24 + Tree::kBytes));
  parsed.last_page = u64(meta, 24 + 2 * Tree::kBytes);
  parsed.transaction = u64(meta, 32 + 2 * Tree::kBytes);
  return parsed;
}

Result<TreePage> TreePage::parse(std::string_view bytes, uint64_t number, Kind kind) {
  if (bytes.size() < kPageHeader) return bad(fmt::format("ends within page {}", number));
  const uint16_t flags = u16(bytes, kPageFlagsAt);
  const uint16_t wanted = kind == Kind::branch ? kBranch : kLeaf;
  const uint16_t lower = u16(bytes, 12);
  const uint16_t upper = u16(bytes, 14);
  if (u64(bytes, 0) != number || (flags & (kBranch | kLeaf | kMeta | kSubPage)) != wanted ||
      lower < kPageHeader || lower > upper || upper > bytes.size())
    return bad(
        fmt::format("holds something else where page {} should be: it is torn, or being written", number));
  if ((flags & kFixedKeys) != 0) return bad("has values of a fixed size (MDB_DUPFIXED), which are not read");
  return TreePage(bytes, (lower - kPageHeader) / 2);
}

std::optional<uint32_t> TreePage::place(uint32_t node) const {
  const uint32_t at = u16(bytes_, kPageHeader + 2 * node);
  if (at < kPageHeader || at + kNodeHeader > bytes_.size()) return std::nullopt;
  return at;
}

std::optional<uint64_t> TreePage::child(uint32_t node) const {
  const auto at = place(node);
  if (!at) return std::nullopt;
  return number_at(bytes_, *at, 6);
}

std::optional<Leaf> TreePage::leaf(uint32_t node) const {
  const auto at = place(node);
  if (!at) return std::nullopt;
  const uint16_t flags = u16(bytes_, *at + 4);
  const uint32_t key_bytes = u16(bytes_, *at + 6);
  Leaf leaf;
  leaf.bytes = u32(bytes_, *at);
  leaf.offset = *at + kNodeHeader + key_bytes;
  leaf.overflow = (flags & kBigData) != 0;
  leaf.tree = (flags & kSubData) != 0;
  const uint32_t here = leaf.overflow ? 8 : leaf.bytes;
  if ((flags & kDupData) != 0 || leaf.offset > bytes_.size() || here > bytes_.size() - leaf.offset ||
      (leaf.tree && leaf.bytes != Tree::kBytes))
    return std::nullopt;
  leaf.key = bytes_.substr(*at + kNodeHeader, key_bytes);
  if (leaf.overflow) leaf.page = u64(bytes_, leaf.offset);
  return leaf;
}

}  // namespace clairfs::lmdb
