#include "plan/formats/lmdb/data_file.h"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace clairfs::lmdb {
namespace {

// LMDB's own limit (CURSOR_STACK).
constexpr uint16_t kDeepest = 32;
// So much is read at a time: enough to keep 64 requests of single pages under way, or some whole chunks, in
// little memory.
constexpr size_t kBatchPages = 4096;
// Pages that follow each other are read together, as they lie after a database was written in order.
constexpr uint64_t kMostPiece = 1 << 20;

constexpr uint64_t kFirstTreePage = 2;

Error torn(std::string why) {
  return {EINVAL, std::move(why) + ": it is torn, or being written"};
}

bool has_twice(std::vector<uint64_t> pages) {
  std::sort(pages.begin(), pages.end());
  return std::adjacent_find(pages.begin(), pages.end()) != pages.end();
}

Result<Meta> read_metas(const DatasetSource& source, FileId file) {
  const auto read = [&](uint64_t offset) -> Result<Meta> {
    const ByteRange start{file, offset, kMetaBytes};
    if (offset + kMetaBytes > source.catalog->stamp(file).size)
      return Error{EINVAL, "is too short for an LMDB data file"};
    const auto bytes = source.read_all({&start, 1});
    if (!bytes) return bytes.error();
    return parse_meta(bytes->front());
  };
  Result<Meta> first = read(0);
  if (!first) return first;
  Result<Meta> second = read(first->page_bytes);
  if (!second) return second;
  if (second->page_bytes != first->page_bytes) return torn("has two sizes of pages");
  return second->transaction > first->transaction ? second : first;
}

}  // namespace

Result<DataFile> DataFile::open(const DatasetSource& source, FileId file) {
  const Result<Meta> meta = read_metas(source, file);
  if (!meta) return meta.error();
  return DataFile(source, file, *meta);
}

Status DataFile::check_unchanged() const {
  const Result<Meta> now = read_metas(*source_, file_);
  if (!now) return now.error();
  return *now == meta_ ? Status()
                       : Error{EINVAL, "was written to while it was read; want a finished database"};
}

bool DataFile::has_pages(uint64_t page, uint64_t bytes) const {
  const uint64_t size = source_->catalog->stamp(file_).size;
  const uint64_t whole = size / meta_.page_bytes;
  const uint64_t pages = (bytes + meta_.page_bytes - 1) / meta_.page_bytes;
  return page >= kFirstTreePage && page <= meta_.last_page && page < whole && pages <= whole - page;
}

uint64_t DataFile::pages() const {
  return std::min(meta_.last_page, source_->catalog->stamp(file_).size / meta_.page_bytes);
}

Status DataFile::walk(const Tree& tree, const Visit& visit) const {
  if (tree.depth > kDeepest) return torn(fmt::format("has a tree of {} levels", tree.depth));
  std::vector<uint64_t> level;
  if (tree.depth != 0) level.push_back(tree.root);
  const uint64_t most = pages();
  uint64_t visited = 0;
  uint64_t entries = 0;
  for (uint16_t depth = 1; depth <= tree.depth; ++depth) {
    const auto kind = depth == tree.depth ? TreePage::Kind::leaf : TreePage::Kind::branch;
    visited += level.size();
    if (visited > meta_.last_page || has_twice(level)) return torn("has pages that lead to each other");
    std::vector<Wanted> wanted;
    for (const uint64_t page : level) wanted.push_back({page, wanted.size()});
    if (kind == TreePage::Kind::leaf)
      std::sort(wanted.begin(), wanted.end(),
                [](const Wanted& a, const Wanted& b) { return a.page < b.page; });
    std::vector<uint64_t> below;
    const Status read = read_pages(wanted, [&](const Wanted& at, std::string_view bytes) -> Status {
      const uint64_t number = at.page;
      const Result<TreePage> page = TreePage::parse(bytes, number, kind);
      if (!page) return page.error();
      for (uint32_t node = 0; kind == TreePage::Kind::branch && node < page->nodes(); ++node) {
        const auto child = page->child(node);
        if (!child) return torn(fmt::format("has a node outside its page {}", number));
        // Nodes may all name one page, so a page of 32 KiB can name sixteen thousand.
        if (below.size() == most) return torn("names more pages than it has");
        below.push_back(*child);
      }
      entries += kind == TreePage::Kind::leaf ? page->nodes() : 0;
      return visit({kind, number, at.rank, *page});
    });
    if (!read) return read;
    level = std::move(below);
  }
  if (entries == tree.entries) return {};
  return torn(fmt::format("has {} records where it should have {}", entries, tree.entries));
}

Status DataFile::read_pages(std::span<const Wanted> pages, const Take& take) const {
  while (!pages.empty()) {
    const size_t count = std::min(pages.size(), kBatchPages);
    if (Status status = read_batch(pages.first(count), take); !status) return status;
    pages = pages.subspan(count);
  }
  return {};
}

Status DataFile::read_batch(std::span<const Wanted> pages, const Take& take) const {
  const uint64_t page_bytes = meta_.page_bytes;
  std::vector<ByteRange> pieces;
  for (size_t i = 0; i < pages.size(); ++i) {
    const uint64_t page = pages[i].page;
    if (!has_pages(page)) return torn(fmt::format("ends before its page {}", page));
    const bool follows = i != 0 && page == pages[i - 1].page + 1 && pieces.back().length < kMostPiece;
    if (follows) {
      pieces.back().length += page_bytes;
    } else {
      pieces.push_back(page_range(page));
    }
  }
  const auto read = source_->read_all(pieces);
  if (!read) return read.error();
  size_t next = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::string_view bytes = (*read)[i];
    if (bytes.size() != pieces[i].length)
      return torn(fmt::format("ends within its page {}", pages[next].page));
    for (; !bytes.empty(); bytes.remove_prefix(page_bytes)) {
      if (Status status = take(pages[next++], bytes.substr(0, page_bytes)); !status) return status;
    }
  }
  return {};
}

}  // namespace clairfs::lmdb
