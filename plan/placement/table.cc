#include "plan/placement/table.h"

#include <algorithm>

namespace clairfs {
namespace {

// Along the files: looking each chunk up costs a binary search.
std::vector<uint32_t> chunk_lengths(const Catalog& catalog) {
  std::vector<uint32_t> lengths(catalog.chunk_count());
  for (uint32_t file = 0; file < catalog.size(); ++file) {
    if (catalog.kind(FileId(file)) != Catalog::Kind::file) continue;
    const Catalog::Chunks chunks = catalog.chunks(FileId(file));
    const uint64_t size = catalog.chunk_size(FileId(file));
    uint64_t left = catalog.stamp(FileId(file)).size;
    for (uint32_t i = 0; i < chunks.count; ++i) {
      const auto length = static_cast<uint32_t>(std::min(left, size));
      lengths[chunks.first.index() + i] = length;
      left -= length;
    }
  }
  return lengths;
}

}  // namespace

PlacementTable::PlacementTable(const Catalog& catalog, std::span<const NodeCapacity> capacities)
    : lengths_(std::make_shared<const std::vector<uint32_t>>(chunk_lengths(catalog))),
      room_(capacities.begin(), capacities.end()),
      kept_bytes_(capacities.size()),
      row_bytes_(row_bytes(capacities.size())),
      homes_(catalog.chunk_count(), kNobody),
      tiers_(catalog.chunk_count() * row_bytes_) {}

void PlacementTable::keep(ChunkId chunk, NodeId node, Tier tier) {
  room_in(node, tier) -= bytes(chunk, tier);
  kept_bytes_[node.index()] += length(chunk);
  row(chunk)[node.value / kPerByte] |= static_cast<uint8_t>(static_cast<uint32_t>(tier) << shift(node));
}

void PlacementTable::drop(ChunkId chunk, NodeId node) {
  const Tier kept = tier(chunk, node);
  room_in(node, kept) += bytes(chunk, kept);
  kept_bytes_[node.index()] -= length(chunk);
  row(chunk)[node.value / kPerByte] &= static_cast<uint8_t>(~(3U << shift(node)));
}

uint64_t PlacementTable::memory_bytes() const {
  return sizeof(*this) + lengths_->size() * sizeof(uint32_t) + room_.size() * sizeof(NodeCapacity) +
         homes_.size() * sizeof(uint16_t) + tiers_.size();
}

}  // namespace clairfs
