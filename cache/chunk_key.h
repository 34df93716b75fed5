// A chunk's identity by content, which holds over rescans and mount points.
#pragma once

#include "cache/catalog.h"
#include "cache/nvme_store.h"

namespace clairfs {

/// XXH3-128 over the file's path relative to the root, its size, mtime, ctime and inode, and the chunk's
/// offset and length. The source's own path is not part of it: it may be mounted elsewhere the next time. All
/// but the path have a fixed width and precede it, so that different fields never give the same bytes.
/// REQUIRES: chunk < catalog.chunk_count(). Thread-safe.
ChunkKey chunk_key(const Catalog& catalog, ChunkId chunk);

}  // namespace clairfs
