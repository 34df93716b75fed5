// A chunk's identity by path and stamp of its file, which holds over rescans and mount points.
#pragma once

#include <cstdint>

#include "cache/catalog/catalog.h"

namespace clairfs {

/// Identity of a chunk: see chunk_key().
struct ChunkKey {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const ChunkKey&) const = default;
};

/// XXH3-128 over the source's real path, the file's path in it, its size, mtime and ctime, and the chunk's
/// offset and length. Fields of fixed width precede the paths, which a NUL separates, so that different
/// fields never give the same bytes. A dataset that is reached by another path is another one. REQUIRES:
/// chunk < catalog.chunk_count(). Thread-safe.
ChunkKey chunk_key(const Catalog& catalog, ChunkId chunk);

}  // namespace clairfs
