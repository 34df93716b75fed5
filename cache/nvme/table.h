// The contents of an NVMe store: chunks, where they lie, and how many reads use them. Memory only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cache/nvme/record.h"
#include "cache/nvme/space.h"
#include "cache/nvme/store.h"

namespace clairfs {

/// About 80 bytes a chunk, the table's share included; most have one extent.
struct NvmeChunk {
  static constexpr uint32_t kNotWritten = UINT32_MAX;

  uint64_t checksum = 0;
  uint32_t length = 0;
  uint32_t record = kNotWritten;  ///< number of its first record in the index
  Extent first;
  std::unique_ptr<std::vector<Extent>> rest;

  static NvmeChunk make(uint32_t length, uint64_t checksum, const std::vector<Extent>& extents);
  std::vector<Extent> extents() const;
  uint32_t parts() const { return rest ? static_cast<uint32_t>(rest->size()) + 1 : 1; }
  /// The sealed records that put it into the index.
  std::vector<NvmeRecord> records(const ChunkKey& key) const;
};

/// The record that drops `key`, sealed.
NvmeRecord drop_record(const ChunkKey& key);

/// Not thread-safe. Slots of a chunk that is erased while being read are freed when the last reader has
/// ended.
class NvmeTable {
 public:
  using Chunks = std::unordered_map<ChunkKey, NvmeChunk>;

  explicit NvmeTable(uint32_t segment_slots) : space(segment_slots) {}

  const NvmeChunk* find(const ChunkKey& key) const;
  NvmeChunk* find(const ChunkKey& key);
  /// REQUIRES: not there; its slots are allocated.
  void insert(const ChunkKey& key, NvmeChunk chunk);
  /// With `only_at`: only if the chunk's first slot is this one, not if it was written again since. Returns
  /// whether something was erased.
  bool erase(const ChunkKey& key, std::optional<uint32_t> only_at = {});
  /// Pairs of these calls keep the slots of the chunk that starts at `first_slot`.
  void begin_read(uint32_t first_slot) { ++readings_[first_slot].readers; }
  void end_read(uint32_t first_slot);
  void release(const std::vector<Extent>& extents);

  const Chunks& chunks() const { return chunks_; }
  uint64_t used_bytes() const { return used_slots_ * kSlotSize; }  ///< of chunks, padding included
  uint64_t records() const { return records_; }                    ///< that describe the chunks

  NvmeSpace space;

 private:
  struct Reading {
    unsigned readers = 0;
    std::vector<Extent> to_release;
  };

  Chunks chunks_;
  std::unordered_map<uint32_t, Reading> readings_;
  uint64_t used_slots_ = 0;
  uint64_t records_ = 0;
};

}  // namespace clairfs
