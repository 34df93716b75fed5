// Chunks of records: every node reads all of them, a part at a time, so it does not matter whose they are.
// Each node is given a piece of the file from end to end, which it can read from the PFS as one stream
// (S. Pumma et al., "Scalable Deep Learning via I/O Analysis and Optimization" (LMDBIO), ACM TOPC 6(2), 2019,
// section 5.6: fewer processes read near each other at a time).
#include <algorithm>
#include <cstdint>
#include <limits>

#include "plan/placement/rules.h"

namespace clairfs {
namespace {

// bytes * part / whole, rounded down; part / whole to 31 bits. REQUIRES: part <= whole, whole > 0.
uint64_t proportion(uint64_t bytes, uint64_t part, uint64_t whole) {
  for (; whole > std::numeric_limits<uint32_t>::max(); whole /= 2) part /= 2;
  return bytes / whole * part + bytes % whole * part / whole;
}

uint64_t room_of(const PlacementTable& table, NodeId node) {
  return table.room(node).ram + table.room(node).nvme;
}

// False if the node has no room for the chunk.
bool keep_at_home(PlacementTable& table, ChunkId chunk, NodeId node) {
  const Tier tier = table.tier_with_room(chunk, node);
  if (tier == Tier::none) return false;
  table.keep(chunk, node, tier);
  table.set_home(chunk, node);
  return true;
}

}  // namespace

void place_segments(PlacementTable& table, const JobUses& uses) {
  std::vector<ChunkId> chunks;
  uint64_t bytes = 0;
  for (ChunkId chunk(0); chunk.value < table.chunks(); ++chunk.value) {
    if (!uses.of_records(chunk)) continue;
    chunks.push_back(chunk);
    bytes += table.length(chunk);
  }
  uint64_t room = 0;
  for (NodeId node(0); node.value < table.nodes(); ++node.value) room += room_of(table, node);
  auto next = chunks.begin();
  for (NodeId node(0); node.value < table.nodes() && next != chunks.end(); ++node.value) {
    const uint64_t mine = room_of(table, node);
    const uint64_t share = room <= bytes ? mine : proportion(bytes, mine, room);
    for (uint64_t taken = 0; next != chunks.end() && taken < share; ++next) {
      if (!keep_at_home(table, *next, node)) break;
      taken += table.length(*next);
    }
  }
  // What was lost at the ends of tiers; chunks differ in size.
  for (; next != chunks.end(); ++next) {
    for (NodeId node(0); node.value < table.nodes(); ++node.value) {
      if (keep_at_home(table, *next, node)) break;
    }
  }
}

void copy_segments(PlacementTable& table, const JobUses& uses) {
  std::vector<ChunkId> chunks;
  for (ChunkId chunk(0); chunk.value < table.chunks(); ++chunk.value) {
    if (uses.of_records(chunk) && table.home(chunk)) chunks.push_back(chunk);
  }
  for (NodeId node(0); node.value < table.nodes(); ++node.value) {
    const auto last =
        std::find_if(chunks.rbegin(), chunks.rend(), [&](ChunkId c) { return table.home(c) == node; });
    const auto begin = static_cast<size_t>(chunks.rend() - last);
    for (size_t i = 0; i < chunks.size(); ++i) {
      const ChunkId chunk = chunks[(begin + i) % chunks.size()];
      if (table.tier(chunk, node) != Tier::none) continue;
      const Tier tier = table.tier_with_room(chunk, node);
      if (tier == Tier::none) break;
      table.keep(chunk, node, tier);
    }
  }
}

}  // namespace clairfs
