// Reading through the cache from a thread that may wait.
#pragma once

#include <cstdint>
#include <string>

#include "cache/chunks/chunk_cache.h"

namespace clairfs {

/// Bytes [offset, offset + length) of a file, fewer only at its end. Never call it from a thread that
/// completes transfers. Errors: those of the cache; ETIMEDOUT when the source does not answer within a
/// minute.
Result<std::string> read_bytes(ChunkCache& cache, const Catalog& catalog, FileId file, uint64_t offset,
                               uint64_t length);

}  // namespace clairfs
