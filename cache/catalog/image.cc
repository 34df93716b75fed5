#include "cache/catalog/image.h"

#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include <sys/stat.h>
#include <xxhash.h>

#include "cache/catalog/record_chunks.h"

namespace clairfs::catalog_image {
namespace {

// Of a path that the kernel takes in one piece; single names are shorter on every filesystem.
constexpr size_t kLongestName = 4095;

// The parts of an image, found by its header.
struct View {
  explicit View(std::span<const std::byte> image)
      : header(*reinterpret_cast<const Header*>(image.data())),
        layout(layout_of(header)),
        rows(reinterpret_cast<const Row*>(image.data() + layout.rows)),
        chunk_start(reinterpret_cast<const uint32_t*>(image.data() + layout.chunk_start)),
        string_start(reinterpret_cast<const uint64_t*>(image.data() + layout.string_start)),
        characters(reinterpret_cast<const char*>(image.data() + layout.characters)) {}

  std::string_view text(uint32_t string) const {
    return {characters + string_start[string], string_start[string + 1] - string_start[string] - 1};
  }

  const Header& header;
  Layout layout;
  const Row* rows;
  const uint32_t* chunk_start;
  const uint64_t* string_start;
  const char* characters;
};

// XXH3-64 over fields; text is preceded by its length, so that no two sequences of fields hash the same
// bytes.
class Hash {
 public:
  Hash() : state_(XXH3_createState()) { XXH3_64bits_reset(state_.get()); }
  template <class Number>
  void number(Number value) {
    XXH3_64bits_update(state_.get(), &value, sizeof value);
  }
  void text(std::string_view value) {
    number(static_cast<uint64_t>(value.size()));
    XXH3_64bits_update(state_.get(), value.data(), value.size());
  }
  uint64_t digest() const { return XXH3_64bits_digest(state_.get()); }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_;
};

Error damaged(const std::string& what) {
  return Error{EBADMSG, "catalog: " + what};
}
Error damaged(const char* what, uint32_t entry) {
  return damaged("entry " + std::to_string(entry) + " has " + what);
}

bool valid_name(std::string_view name) {
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos;
}

// Header, sizes and checksum: all that must hold before any part is looked at.
Status verify_frame(std::span<const std::byte> image) {
  if (image.size() < sizeof(Header)) return damaged("shorter than its header");
  const auto& header = *reinterpret_cast<const Header*>(image.data());
  if (header.magic != kMagic) return damaged("not a catalog");
  if (header.byte_order != kByteOrder) return damaged("written on a machine of the other byte order");
  if (header.version != kVersion) return damaged("format version " + std::to_string(header.version));
  if (header.bytes != image.size()) return damaged("not as long as it should be");
  if (header.checksum != checksum_of(image)) return damaged("wrong checksum");
  if (header.characters > image.size() || layout_of(header).bytes != image.size()) {
    return damaged("counts and size do not agree");
  }
  if (header.entries == 0 || header.strings == 0 || header.chunk_size == 0) return damaged("empty");
  if (header.entries == std::numeric_limits<uint32_t>::max()) return damaged("too many entries");
  return {};
}

Status verify_strings(const View& view) {
  uint64_t start = 0;
  for (uint32_t i = 0; i < view.header.strings; ++i) {
    const uint64_t end = view.string_start[i + 1];
    if (view.string_start[i] != start || end <= start || end > view.header.characters) {
      return damaged("string table out of order");
    }
    if (std::memchr(view.characters + start, 0, end - start) != view.characters + end - 1) {
      return damaged("string not ended where it should");
    }
    start = end;
  }
  if (start != view.header.characters) return damaged("characters of no string");
  if (view.header.source >= view.header.strings) return damaged("source path missing");
  return {};
}

// One entry by itself: kind, references into other tables, chunks.
Status verify_row(const View& view, uint32_t i) {
  const Row& row = view.rows[i];
  if (row.name >= view.header.strings) return damaged("a name out of range", i);
  if (i > 0 && !valid_name(view.text(row.name))) return damaged("an impossible name", i);
  if (row.size > std::numeric_limits<int64_t>::max()) return damaged("an impossible size", i);
  const bool own_chunks = S_ISREG(row.mode) && row.extra != 0;
  if (own_chunks && (row.extra % kChunkUnit != 0 || row.extra >= view.header.chunk_size))
    return damaged("an impossible chunk size", i);
  const uint64_t chunks = S_ISREG(row.mode) ? chunks_of(row, view.header) : 0;
  if (uint64_t{view.chunk_start[i]} + chunks != view.chunk_start[i + 1]) return damaged("wrong chunks", i);
  const uint32_t next_child = view.rows[i + 1].first_child;
  if (next_child < row.first_child || next_child > view.header.entries) return damaged("wrong children", i);
  if (S_ISDIR(row.mode)) return row.extra <= 1 ? Status() : damaged("an unknown flag", i);
  if (next_child != row.first_child || row.subdirectories != 0)
    return damaged("children but is no directory", i);
  if (S_ISREG(row.mode)) return {};
  if (!S_ISLNK(row.mode)) return damaged("an unknown kind", i);
  if (row.extra >= view.header.strings) return damaged("a target out of range", i);
  if (row.size == 0 || row.size != view.text(row.extra).size()) return damaged("a wrong target", i);
  return {};
}

// Children of `parent`: after it, knowing it, sorted without duplicates.
Status verify_children(const View& view, uint32_t parent) {
  const uint32_t first = view.rows[parent].first_child;
  const uint32_t end = view.rows[parent + 1].first_child;
  if (first < end && first <= parent) return damaged("children before itself", parent);
  uint32_t subdirectories = 0;
  for (uint32_t i = first; i < end; ++i) {
    if (view.rows[i].parent != parent) return damaged("another parent", i);
    if (i > first && view.text(view.rows[i - 1].name) >= view.text(view.rows[i].name)) {
      return damaged("a name out of order", i);
    }
    if (S_ISDIR(view.rows[i].mode)) ++subdirectories;
  }
  return subdirectories == view.rows[parent].subdirectories ? Status()
                                                            : damaged("wrong subdirectories", parent);
}

Status verify_tree(const View& view) {
  const Header& header = view.header;
  const Row& root = view.rows[0];
  if (root.first_child != 1 || root.parent != 0 || view.chunk_start[0] != 0 || !S_ISDIR(root.mode)) {
    return damaged("wrong root");
  }
  if (view.rows[header.entries].first_child != header.entries) return damaged("entries of no directory");
  if (view.chunk_start[header.entries] != header.chunks) return damaged("wrong count of chunks");
  Header seen;
  for (uint32_t i = 0; i < header.entries; ++i) {
    if (Status status = verify_row(view, i); !status) return status;
    const uint32_t mode = view.rows[i].mode;
    ++(S_ISDIR(mode) ? seen.directories : S_ISREG(mode) ? seen.files : seen.symlinks);
    if (S_ISREG(mode)) seen.total_bytes += view.rows[i].size;  // < 2^64: chunks are, and chunk_size < 2^32
  }
  for (uint32_t i = 0; i < header.entries; ++i) {
    if (Status status = verify_children(view, i); !status) return status;
  }
  if (!view.text(root.name).empty()) return damaged("named root");
  if (seen.directories != header.directories || seen.files != header.files ||
      seen.symlinks != header.symlinks || seen.total_bytes != header.total_bytes) {
    return damaged("wrong sums");
  }
  return {};
}

}  // namespace

Layout layout_of(const Header& header) {
  // Counts are below 2^32 and the rows 64 bytes, so only `characters` could make this overflow.
  Layout layout;
  const uint64_t rows = uint64_t{header.entries} + 1;
  layout.rows = sizeof(Header);
  layout.chunk_start = layout.rows + rows * sizeof(Row);
  layout.string_start = layout.chunk_start + (rows * sizeof(uint32_t) + 7) / 8 * 8;
  layout.characters = layout.string_start + (uint64_t{header.strings} + 1) * sizeof(uint64_t);
  layout.bytes = layout.characters + header.characters;
  return layout;
}

uint64_t identity_of(std::span<const std::byte> image) {
  const View view(image);
  Hash hash;
  hash.number(kVersion);
  hash.number(view.header.chunk_size);
  for (uint32_t i = 0; i < view.header.entries; ++i) {
    const Row& row = view.rows[i];
    hash.text(view.text(row.name));
    if (S_ISLNK(row.mode)) {  // its permissions mean nothing and differ between filesystems
      hash.number(uint32_t{S_IFLNK});
      hash.text(view.text(row.extra));
      continue;
    }
    hash.number(row.mode);
    if (S_ISREG(row.mode)) {
      hash.number(row.size);
      hash.number(row.extra);
      hash.number(row.mtime_ns);
    } else {
      hash.number(view.rows[i + 1].first_child);
    }
  }
  return hash.digest();
}

uint64_t checksum_of(std::span<const std::byte> image) {
  constexpr size_t kCovered = offsetof(Header, checksum) + sizeof(Header::checksum);
  return XXH3_64bits(image.data() + kCovered, image.size() - kCovered);
}

Status verify(std::span<const std::byte> image) {
  if (Status status = verify_frame(image); !status) return status;
  const View view(image);
  if (Status status = verify_strings(view); !status) return status;
  if (Status status = verify_tree(view); !status) return status;
  if (view.header.identity != identity_of(image)) return damaged("wrong identity");
  return {};
}

}  // namespace clairfs::catalog_image
