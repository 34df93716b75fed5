// Placement: which node keeps which chunk, in which tier, so that the job reads as little as possible from
// the PFS and as much as possible from its own node.
//
// The home of a chunk is the node that uses it most over the horizon, within every node's capacity; the most
// used of a node's chunks lie in its RAM, the others on its NVMe. No chunk gets a second holder before every
// chunk has one (so that N·D bytes of the dataset never leave the PFS twice); capacity that is left then
// holds copies of what a node uses most. A pure function of its inputs: all nodes compute the same without a
// message.
//
// Chunks of records are used by all nodes alike. They come after those of whole samples: each node is home to
// a part of them from end to end, as large as its room allows, and reads it from the PFS in that order.
//
// After N. Dryden et al., "Clairvoyant Prefetching for Distributed Machine Learning I/O" (NoPFS), SC'21,
// section 5.1, which gives every chunk to every node that reads it often and so may leave chunks without any
// holder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/base/types.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/tier_policy.h"
#include "plan/placement/job_uses.h"
#include "plan/placement/table.h"

namespace clairfs {

/// How many epochs of a job's uses to look at (or all, if the job has fewer). With more, a long job reads a
/// little more locally (of 90 epochs, 27 % with 16 and 31 % with all on 4 nodes, 3.5 and 5.4 % on 64); but
/// time and memory grow with them, and placement comes before everything else.
inline constexpr uint32_t kPlacementEpochs = 16;

/// Which rule decides: the one above, or for comparison that of NoPFS.
enum class PlacementRule : uint8_t { clairfs, nopfs };

/// Where a chunk lives.
struct Home {
  NodeId node;
  Tier tier = Tier::none;
  bool operator==(const Home&) const = default;
};

/// Immutable after it was made, so thread-safe without locks. Memory: that of its JobUses, and what
/// PlacementTable says.
class PlacementMap {
 public:
  /// `capacities` by rank. Errors: none; what fits nowhere has no home. REQUIRES: as many capacities as nodes
  /// in `uses`.
  static PlacementMap make(const Catalog& catalog, JobUses uses, std::span<const NodeCapacity> capacities,
                           PlacementRule rule = PlacementRule::clairfs);
  /// The same placement, but what the nodes of `dead` (by rank) held finds a new home among the living, in
  /// place of second copies where needed; nothing else moves.
  PlacementMap without(const std::vector<bool>& dead) const;

  uint32_t nodes() const { return table_.nodes(); }
  /// Whether any plan that was looked at uses the chunk.
  bool covers(ChunkId chunk) const { return uses_->used(chunk); }
  std::optional<Home> home(ChunkId chunk) const;
  /// Tier::none if that node does not keep the chunk; else where, as its home or as a copy.
  Tier tier_at(NodeId node, ChunkId chunk) const { return table_.tier(chunk, node); }
  /// The nodes that keep it, its home first.
  std::vector<NodeId> holders(ChunkId chunk) const;
  /// The node's home chunks in the order of the job's first use of them: what it reads from the PFS first.
  /// Those of records come last, in the order of their file.
  std::vector<ChunkId> prefill_order(NodeId node) const;
  /// The chunks that the node keeps though another is their home, in the same order.
  std::vector<ChunkId> copies(NodeId node) const;
  uint64_t homeless_bytes() const { return homeless_bytes_; }  ///< of used chunks: always read from the PFS
  uint64_t kept_bytes(NodeId node) const { return table_.kept_bytes(node); }  ///< padding not included
  uint64_t memory_bytes() const { return table_.memory_bytes() + uses_->memory_bytes(); }

 private:
  PlacementMap(PlacementTable table, std::shared_ptr<const JobUses> uses);
  std::vector<ChunkId> kept_chunks(NodeId node, bool homes) const;

  PlacementTable table_;
  std::shared_ptr<const JobUses> uses_;
  uint64_t homeless_bytes_ = 0;
};

}  // namespace clairfs
