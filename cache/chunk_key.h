// The identity of a chunk's content, by which an NVMe store knows it over remounts and rescans.
#pragma once

#include "cache/catalog.h"
#include "cache/nvme_store.h"

namespace clairfs {

/// XXH3-128 over the relative path, size and mtime of the file and the range of the chunk: a changed file has
/// other keys, an unchanged one the same however the chunks are numbered.
ChunkKey chunk_key(const Catalog& catalog, ChunkId chunk);

}  // namespace clairfs
