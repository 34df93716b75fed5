// Copies: what each node does with the room that homes leave.
#include <algorithm>
#include <limits>

#include "plan/placement/chunk_order.h"
#include "plan/placement/rules.h"

namespace clairfs {
namespace {

uint64_t smallest_home(const PlacementTable& table) {
  uint64_t smallest = std::numeric_limits<uint64_t>::max();
  for (uint32_t c = 0; c < table.chunks(); ++c) {
    if (table.home(ChunkId(c))) smallest = std::min(smallest, table.bytes(ChunkId(c), Tier::ram));
  }
  return smallest;
}

}  // namespace

void place_copies(PlacementTable& table, const JobUses& uses) {
  const uint64_t smallest = smallest_home(table);
  for (uint32_t n = 0; n < table.nodes(); ++n) {
    const NodeId node(n);
    const auto full = [&] { return std::max(table.room(node).ram, table.room(node).nvme) < smallest; };
    if (full()) continue;
    const std::vector<uint32_t> counts = uses.uses_of(node);
    const auto count = [&](ChunkId chunk) { return counts[chunk.index()]; };
    std::vector<ChunkId> wanted;
    for (uint32_t c = 0; c < table.chunks(); ++c) {
      const ChunkId chunk(c);
      if (counts[c] > 0 && table.home(chunk) && table.tier(chunk, node) == Tier::none)
        wanted.push_back(chunk);
    }
    wanted = by_descending(wanted, count);
    for_each_run(wanted, count, [&](std::span<const ChunkId> equals) {
      for_each_scattered(equals, [&](ChunkId chunk) {
        const Tier tier = table.tier_with_room(chunk, node);
        if (tier != Tier::none) table.keep(chunk, node, tier);
        return !full();
      });
    });
  }
}

}  // namespace clairfs
