#include "cache/nvme/table.h"

#include <utility>

namespace clairfs {

NvmeChunk NvmeChunk::make(uint32_t length, uint64_t checksum, const std::vector<Extent>& extents) {
  NvmeChunk chunk;
  chunk.checksum = checksum;
  chunk.length = length;
  chunk.first = extents.front();
  if (extents.size() > 1) {
    chunk.rest = std::make_unique<std::vector<Extent>>(extents.begin() + 1, extents.end());
  }
  return chunk;
}

std::vector<Extent> NvmeChunk::extents() const {
  std::vector<Extent> all{first};
  if (rest) all.insert(all.end(), rest->begin(), rest->end());
  return all;
}

std::vector<NvmeRecord> NvmeChunk::records(const ChunkKey& key) const {
  std::vector<NvmeRecord> records;
  for (const Extent& extent : extents()) {
    NvmeRecord part;
    part.part = static_cast<uint8_t>(records.size());
    part.parts = static_cast<uint8_t>(parts());
    part.length = length;
    part.checksum = checksum;
    part.key = key;
    part.extent = extent;
    part.seal();
    records.push_back(part);
  }
  return records;
}

NvmeRecord drop_record(const ChunkKey& key) {
  NvmeRecord record;
  record.kind = NvmeRecord::Kind::drop;
  record.key = key;
  record.seal();
  return record;
}

const NvmeChunk* NvmeTable::find(const ChunkKey& key) const {
  const auto found = chunks_.find(key);
  return found == chunks_.end() ? nullptr : &found->second;
}

NvmeChunk* NvmeTable::find(const ChunkKey& key) {
  const auto found = chunks_.find(key);
  return found == chunks_.end() ? nullptr : &found->second;
}

void NvmeTable::insert(const ChunkKey& key, NvmeChunk chunk) {
  used_slots_ += slots_for(chunk.length);
  records_ += chunk.parts();
  chunks_.emplace(key, std::move(chunk));
}

bool NvmeTable::erase(const ChunkKey& key, std::optional<uint32_t> only_at) {
  const auto found = chunks_.find(key);
  if (found == chunks_.end() || (only_at && found->second.first.first != *only_at)) return false;
  const NvmeChunk chunk = std::move(found->second);
  chunks_.erase(found);
  used_slots_ -= slots_for(chunk.length);
  records_ -= chunk.parts();
  const auto reading = readings_.find(chunk.first.first);
  if (reading == readings_.end()) {
    release(chunk.extents());
  } else {
    reading->second.to_release = chunk.extents();
  }
  return true;
}

void NvmeTable::end_read(uint32_t first_slot) {
  const auto reading = readings_.find(first_slot);
  if (--reading->second.readers > 0) return;
  release(reading->second.to_release);
  readings_.erase(reading);
}

void NvmeTable::release(const std::vector<Extent>& extents) {
  for (const Extent& extent : extents) space.release(extent);
}

}  // namespace clairfs
