#include "cache/chunk_key.h"

#include <array>
#include <cstring>
#include <string>

#include <xxhash.h>

namespace clairfs {

ChunkKey chunk_key(const Catalog& catalog, ChunkId chunk) {
  const ChunkRange range = catalog.range(chunk);
  const FileStamp stamp = catalog.stamp(range.file);
  const Catalog::SourceState state = catalog.source_state(range.file);
  // ctime: a file that was given other bytes and its old mtime back (rsync -t, touch -d) is another file. The
  // inode: so are files of one name in two datasets, written within one tick of the clock.
  const std::array<uint64_t, 6> fields = {stamp.size,
                                          static_cast<uint64_t>(stamp.mtime_ns),
                                          static_cast<uint64_t>(state.ctime_ns),
                                          state.inode,
                                          range.offset,
                                          range.length};
  std::string bytes(sizeof fields, '\0');
  std::memcpy(bytes.data(), fields.data(), sizeof fields);
  bytes += catalog.path(range.file);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

}  // namespace clairfs
