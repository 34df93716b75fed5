// The catalog as bytes: one image serves as memory layout, as saved file and as message between nodes.
//
//   Header
//   Row      x entries + 1   breadth first; the last row only holds first_child = entries
//   uint32_t x entries + 1   chunks of all entries before this one; padded to 8 bytes
//   uint64_t x strings + 1   where each string starts
//   char     x characters    the strings, each ended by NUL, each stored once
//
// Native byte order and alignment; an image from a machine of the other byte order is refused. 64 + 4 bytes
// an entry and 8 + 1 a name: 77 bytes an entry when all names differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/base/result.h"

namespace clairfs::catalog_image {

inline constexpr std::array<char, 8> kMagic = {'C', 'L', 'A', 'I', 'R', 'C', 'A', 'T'};
/// Counted up with every change to the layout or to what the identity covers.
inline constexpr uint32_t kVersion = 2;
/// Reads differently on a machine of the other byte order.
inline constexpr uint32_t kByteOrder = 0x01020304;

struct Header {
  std::array<char, 8> magic = kMagic;
  uint32_t version = kVersion;
  uint32_t byte_order = kByteOrder;
  uint64_t checksum = 0;  ///< XXH3-64 of all bytes after this field
  uint64_t bytes = 0;     ///< of the image
  uint64_t identity = 0;
  uint64_t total_bytes = 0;
  uint64_t skipped_special = 0;
  uint64_t unreadable = 0;
  uint64_t characters = 0;
  uint32_t entries = 0;
  uint32_t strings = 0;
  uint32_t chunks = 0;
  uint32_t chunk_size = 0;  ///< bytes, of files that have no other
  uint32_t directories = 0;
  uint32_t files = 0;
  uint32_t symlinks = 0;
  uint32_t source = 0;  ///< string: absolute path of the source
  std::array<uint64_t, 3> unused = {};
};
static_assert(sizeof(Header) == 128, "keeps each row in one cache line");

struct Row {
  int64_t mtime_ns = 0;
  int64_t ctime_ns = 0;
  uint64_t size = 0;
  uint64_t inode = 0;  ///< in the source
  uint32_t mode = 0;   ///< as st_mode; directory, regular file or symlink
  uint32_t uid = 0;
  uint32_t gid = 0;
  uint32_t name = 0;  ///< string
  uint32_t parent = 0;
  uint32_t first_child = 0;     ///< children of an entry: up to the next row's first_child
  uint32_t subdirectories = 0;  ///< among the children
  /// Symlink: target (string). Directory: 1 if not all of it could be read. File: its chunk size, if smaller
  /// than the header's.
  uint32_t extra = 0;
};
static_assert(sizeof(Row) == 64, "one cache line, no padding");

/// Where the parts of an image start, in bytes.
struct Layout {
  uint64_t rows = 0;
  uint64_t chunk_start = 0;
  uint64_t string_start = 0;
  uint64_t characters = 0;
  uint64_t bytes = 0;
};
Layout layout_of(const Header& header);

/// Of a regular file; bytes.
inline uint32_t chunk_size_of(const Row& file, const Header& header) {
  return file.extra != 0 ? file.extra : header.chunk_size;
}
inline uint64_t chunks_of(const Row& file, const Header& header) {
  const uint32_t chunk = chunk_size_of(file, header);
  return file.size / chunk + (file.size % chunk != 0 ? 1 : 0);
}

/// See Catalog::identity(). REQUIRES: a well-formed image, checksum and identity aside.
uint64_t identity_of(std::span<const std::byte> image);
uint64_t checksum_of(std::span<const std::byte> image);

/// Whether the bytes are a well-formed image in every respect. `image` must be aligned to 8 bytes.
/// Errors: EBADMSG with what is wrong.
Status verify(std::span<const std::byte> image);

}  // namespace clairfs::catalog_image
