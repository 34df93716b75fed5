// Finds new homes for the chunks of nodes that died.
#include <algorithm>
#include <array>
#include <optional>

#include "plan/placement/chunk_order.h"
#include "plan/placement/rules.h"
#include "plan/placement/use_tally.h"

namespace clairfs {
namespace {

class Failover {
 public:
  Failover(PlacementTable& table, const JobUses& uses, const std::vector<bool>& dead)
      : table_(table), uses_(uses), tally_(uses), dead_(dead), evictable_(table.nodes()) {}

  void run() {
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      if (dead_[node]) empty(NodeId(node));
    }
    // Copies become homes before any of them may have to make room.
    std::erase_if(orphans_, [this](ChunkId chunk) { return adopt(chunk); });
    std::vector<uint32_t> most(table_.chunks());
    for (const ChunkId chunk : orphans_) most[chunk.index()] = most_uses(chunk);
    orphans_ = by_descending(orphans_, [&](ChunkId c) { return most[c.index()]; });
    orphans_ = by_descending(orphans_, [this](ChunkId c) { return uses_.total(c); });
    std::erase_if(orphans_, [this](ChunkId chunk) { return use_room(chunk); });
    if (orphans_.empty()) return;
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      if (!dead_[node]) list_copies(NodeId(node));
    }
    for (const ChunkId chunk : orphans_) replace_copies(chunk);
  }

 private:
  // Copies that a node could do without, the least used first.
  struct Evictable {
    std::vector<ChunkId> chunks;
    size_t next = 0;
    uint64_t bytes = 0;
  };

  void empty(NodeId node) {
    for (uint32_t c = 0; c < table_.chunks(); ++c) {
      const ChunkId chunk(c);
      if (table_.tier(chunk, node) == Tier::none) continue;
      if (table_.home(chunk) == node) {
        table_.set_home(chunk, std::nullopt);
        orphans_.push_back(chunk);
      }
      table_.drop(chunk, node);
    }
    table_.close(node);
  }

  uint32_t most_uses(ChunkId chunk) {
    tally_.take(chunk);
    uint32_t most = 0;
    for (const NodeId user : tally_.users()) {
      if (!dead_[user.index()]) most = std::max(most, tally_.count(user));
    }
    return most;
  }

  // The living node that uses the chunk most, of those for which `eligible(node)`; among equals the one with
  // most room.
  template <class Eligible>
  std::optional<NodeId> best_node(ChunkId chunk, Eligible&& eligible) {
    tally_.take(chunk);
    const auto room = [this](NodeId node) { return table_.room(node).ram + table_.room(node).nvme; };
    std::optional<NodeId> best;
    for (uint32_t n = 0; n < table_.nodes(); ++n) {
      const NodeId node(n);
      if (dead_[n] || !eligible(node)) continue;
      const bool better = !best || tally_.count(node) > tally_.count(*best) ||
                          (tally_.count(node) == tally_.count(*best) && room(node) > room(*best));
      if (better) best = node;
    }
    return best;
  }

  bool adopt(ChunkId chunk) {
    const auto node = best_node(chunk, [&](NodeId n) { return table_.tier(chunk, n) != Tier::none; });
    table_.set_home(chunk, node);
    return node.has_value();
  }

  bool use_room(ChunkId chunk) {
    const auto node =
        best_node(chunk, [&](NodeId n) { return table_.tier_with_room(chunk, n) != Tier::none; });
    if (node) keep(chunk, *node);
    return node.has_value();
  }

  void keep(ChunkId chunk, NodeId node) {
    table_.keep(chunk, node, table_.tier_with_room(chunk, node));
    table_.set_home(chunk, node);
  }

  Evictable& evictable(NodeId node, Tier tier) { return evictable_[node.index()][tier == Tier::ram ? 0 : 1]; }

  void list_copies(NodeId node) {
    for (uint32_t c = 0; c < table_.chunks(); ++c) {
      const ChunkId chunk(c);
      const Tier tier = table_.tier(chunk, node);
      if (tier == Tier::none || table_.home(chunk) == node) continue;
      evictable(node, tier).chunks.push_back(chunk);
      evictable(node, tier).bytes += table_.bytes(chunk, tier);
    }
    if (evictable(node, Tier::ram).chunks.empty() && evictable(node, Tier::nvme).chunks.empty()) return;
    const std::vector<uint32_t> counts = uses_.uses_of(node);
    for (Evictable& copies : evictable_[node.index()]) {
      copies.chunks = by_descending(copies.chunks, [&](ChunkId c) { return counts[c.index()]; });
      std::reverse(copies.chunks.begin(), copies.chunks.end());
    }
  }

  // The tier in which the chunk would find room if copies went; the one that holds more of them.
  Tier replaceable_tier(ChunkId chunk, NodeId node) {
    Tier best = Tier::none;
    for (const Tier tier : {Tier::ram, Tier::nvme}) {
      const uint64_t room = tier == Tier::ram ? table_.room(node).ram : table_.room(node).nvme;
      if (room + evictable(node, tier).bytes < table_.bytes(chunk, tier)) continue;
      if (best == Tier::none || evictable(node, tier).bytes > evictable(node, best).bytes) best = tier;
    }
    return best;
  }

  void replace_copies(ChunkId chunk) {
    const auto node = best_node(chunk, [&](NodeId n) { return replaceable_tier(chunk, n) != Tier::none; });
    if (!node) return;
    Evictable& copies = evictable(*node, replaceable_tier(chunk, *node));
    while (table_.tier_with_room(chunk, *node) == Tier::none) {
      const ChunkId copy = copies.chunks[copies.next++];
      copies.bytes -= table_.bytes(copy, table_.tier(copy, *node));
      table_.drop(copy, *node);
    }
    keep(chunk, *node);
  }

  PlacementTable& table_;
  const JobUses& uses_;
  UseTally tally_;
  const std::vector<bool>& dead_;
  std::vector<ChunkId> orphans_;
  std::vector<std::array<Evictable, 2>> evictable_;  // by rank: in RAM, on NVMe
};

}  // namespace

void replace_dead(PlacementTable& table, const JobUses& uses, const std::vector<bool>& dead) {
  Failover(table, uses, dead).run();
}

}  // namespace clairfs
