// PlacementTable has the data of a placement, without the rule: which node keeps which chunk in which tier,
// and how much room is left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/tier_policy.h"
#include "cache/memory/ram_arena.h"
#include "cache/nvme/store.h"

namespace clairfs {

/// Bytes that a node can keep; {0, 0} for a dead one. `nvme` is what NvmeStore::usable_bytes() makes of a
/// store's capacity, over all its stores.
struct NodeCapacity {
  uint64_t ram = 0;
  uint64_t nvme = 0;
};

/// A quarter of a byte for each chunk and node, and two bytes a chunk; four more a chunk are shared among
/// copies. Const functions are thread-safe.
class PlacementTable {
 public:
  PlacementTable(const Catalog& catalog, std::span<const NodeCapacity> capacities);

  uint32_t nodes() const { return static_cast<uint32_t>(room_.size()); }
  uint32_t chunks() const { return static_cast<uint32_t>(homes_.size()); }
  uint32_t length(ChunkId chunk) const { return (*lengths_)[chunk.index()]; }
  /// The bytes of a tier that keeping it takes.
  uint64_t bytes(ChunkId chunk, Tier tier) const {
    const uint64_t padded = footprint(tier, length(chunk));
    return tier == Tier::nvme ? std::max(padded, kNvmeSmallestShare) : padded;
  }
  const NodeCapacity& room(NodeId node) const { return room_[node.index()]; }
  /// Bytes of the chunks that the node keeps, padding not included.
  uint64_t kept_bytes(NodeId node) const { return kept_bytes_[node.index()]; }

  std::optional<NodeId> home(ChunkId chunk) const {
    const uint16_t node = homes_[chunk.index()];
    return node == kNobody ? std::nullopt : std::optional(NodeId(node));
  }
  Tier tier(ChunkId chunk, NodeId node) const {
    return static_cast<Tier>(row(chunk)[node.value / kPerByte] >> shift(node) & 3U);
  }
  /// The fastest tier of a node that has room for the chunk; none if there is none.
  Tier tier_with_room(ChunkId chunk, NodeId node) const {
    if (bytes(chunk, Tier::ram) <= room(node).ram) return Tier::ram;
    return bytes(chunk, Tier::nvme) <= room(node).nvme ? Tier::nvme : Tier::none;
  }

  /// REQUIRES: the node does not keep it, and the tier has room.
  void keep(ChunkId chunk, NodeId node, Tier tier);
  /// REQUIRES: the node keeps it. Its home is not touched.
  void drop(ChunkId chunk, NodeId node);
  void set_home(ChunkId chunk, std::optional<NodeId> node) {
    homes_[chunk.index()] = node ? static_cast<uint16_t>(node->value) : kNobody;
  }
  /// The node keeps nothing more from now on. REQUIRES: it keeps nothing now.
  void close(NodeId node) { room_[node.index()] = {}; }

  uint64_t memory_bytes() const;
  /// About what that of a table is, to be told before there is one.
  static uint64_t memory_bytes(uint64_t chunks, uint64_t nodes) {
    return chunks * (sizeof(uint32_t) + sizeof(uint16_t) + row_bytes(nodes));
  }

 private:
  static constexpr uint16_t kNobody = std::numeric_limits<uint16_t>::max();
  static constexpr uint32_t kPerByte = 4;  // two bits a node
  static_assert(kTierValues <= 4, "two bits tell four values apart");

  static uint64_t row_bytes(uint64_t nodes) { return (nodes + kPerByte - 1) / kPerByte; }
  static uint32_t shift(NodeId node) { return node.value % kPerByte * 2; }
  const uint8_t* row(ChunkId chunk) const { return tiers_.data() + chunk.index() * row_bytes_; }
  uint8_t* row(ChunkId chunk) { return tiers_.data() + chunk.index() * row_bytes_; }
  uint64_t& room_in(NodeId node, Tier tier) {
    return tier == Tier::ram ? room_[node.index()].ram : room_[node.index()].nvme;
  }

  std::shared_ptr<const std::vector<uint32_t>> lengths_;  // by chunk
  std::vector<NodeCapacity> room_;                        // by rank
  std::vector<uint64_t> kept_bytes_;                      // by rank
  size_t row_bytes_;
  std::vector<uint16_t> homes_;  // by chunk
  std::vector<uint8_t> tiers_;   // by chunk, a row of two bits a node
};

}  // namespace clairfs
