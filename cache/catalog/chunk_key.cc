#include "cache/catalog/chunk_key.h"

#include <array>
#include <cstring>
#include <string>

#include <xxhash.h>

namespace clairfs {

ChunkKey chunk_key(const Catalog& catalog, ChunkId chunk) {
  const ChunkRange range = catalog.range(chunk);
  const FileStamp stamp = catalog.stamp(range.file);
  // ctime: a file that was given other bytes and its old mtime back (rsync -t, touch -d) is another file.
  const std::array<uint64_t, 5> fields = {stamp.size, static_cast<uint64_t>(stamp.mtime_ns),
                                          static_cast<uint64_t>(catalog.source_state(range.file).ctime_ns),
                                          range.offset, range.length};
  std::string bytes(sizeof fields, '\0');
  std::memcpy(bytes.data(), fields.data(), sizeof fields);
  // Files of one name in two datasets may have been written within one tick of the clock. Not told apart by
  // inode numbers, which some filesystems give anew at every mount.
  bytes += catalog.source();
  bytes += '\0';
  bytes += catalog.path(range.file);
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

}  // namespace clairfs
