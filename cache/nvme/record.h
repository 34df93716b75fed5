// The index's records as they lie on disk (in the byte order of the machine: the store belongs to one node).
//
// A chunk is put by as many consecutive records as it has extents and dropped by one. Each record has its own
// checksum: one that does not hold is skipped, so that damage costs the chunks it hits and no others. A lost
// drop does no harm: when its slots were given to another chunk, the later put wins; when not, its data is
// still there. A put whose data never reached the disk is caught by the chunk's own checksum on read.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cache/catalog/chunk_key.h"
#include "cache/nvme/space.h"

namespace clairfs {

/// Extents that a chunk may be scattered over: one transfer each, and one record in the index.
inline constexpr uint8_t kMaxExtents = 64;

struct NvmeRecord {
  enum class Kind : uint8_t { put = 1, drop = 2 };

  uint64_t check = 0;  ///< XXH3-64 of what follows
  Kind kind = Kind::put;
  uint8_t part = 0;   ///< number of this extent, from 0
  uint8_t parts = 0;  ///< extents of the chunk
  uint8_t unused = 0;
  uint32_t length = 0;  ///< bytes of the chunk
  uint64_t checksum = 0;
  ChunkKey key;
  Extent extent;

  void seal();
  bool intact() const;
};
static_assert(sizeof(NvmeRecord) == 48 && std::is_trivially_copyable_v<NvmeRecord>);

/// First entry of the index file, as large as a record.
struct NvmeIndexHeader {
  static constexpr char kMagic[8] = {'c', 'l', 'a', 'i', 'r', 'n', 'v', 'm'};
  static constexpr uint32_t kVersion = 1;

  uint64_t check = 0;  ///< XXH3-64 of what follows
  char magic[8] = {};
  uint32_t version = 0;
  uint32_t record_size = 0;
  uint32_t slot_size = 0;
  uint32_t segment_slots = 0;
  uint64_t unused[2] = {};

  static NvmeIndexHeader make(uint32_t segment_slots);
  bool operator==(const NvmeIndexHeader& other) const;
};
static_assert(sizeof(NvmeIndexHeader) == sizeof(NvmeRecord) && std::is_trivially_copyable_v<NvmeIndexHeader>);

}  // namespace clairfs
