// Reads of pieces of the dataset, for a caller that waits for all of them: indexes of packed formats.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "cache/base/result.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/source/source.h"
#include "plan/formats/samples/sample_index.h"

namespace clairfs {

/// The bytes of each piece, all asked of `source` together and none kept in a tier: pages of an index lie far
/// apart, and of the chunks around them little else is needed. Never call it from a thread that completes
/// reads. REQUIRES: the pieces lie within their files. Errors: those of the source; ETIMEDOUT when it answers
/// nothing for a minute.
Result<std::vector<std::string>> read_pieces(ChunkSource& source, std::span<const ByteRange> pieces);

/// The same where the pieces may be all there is, such as the leaves of a database that holds its values in
/// them: a chunk that is in the RAM tier, or of which much is asked, comes from the cache and may be kept, so
/// that the source is read once for the index and the samples. Errors: those of the cache, too.
Result<std::vector<std::string>> read_pieces(ChunkCache& cache, const Catalog& catalog, ChunkSource& source,
                                             std::span<const ByteRange> pieces);

}  // namespace clairfs
