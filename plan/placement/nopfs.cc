// The rule of NoPFS, for comparison: every node keeps what it uses most itself, whoever else has it.
#include <algorithm>

#include "plan/placement/rules.h"

namespace clairfs {

void place_as_nopfs(PlacementTable& table, const JobUses& uses) {
  const auto for_each_used = [&](auto&& visit) {
    for (uint32_t c = 0; c < table.chunks(); ++c) {
      if (uses.total(ChunkId(c)) > 0) visit(ChunkId(c));
    }
  };
  for_each_used([&](ChunkId chunk) { table.set_home(chunk, NodeId(0)); });  // so that copies of it are wanted
  place_copies(table, uses);
  for_each_used([&](ChunkId chunk) {
    std::optional<NodeId> home;
    uint32_t most = 0;
    for (uint32_t n = 0; n < table.nodes(); ++n) {
      if (table.tier(chunk, NodeId(n)) == Tier::none || uses.uses(chunk, NodeId(n)) <= most) continue;
      home = NodeId(n);
      most = uses.uses(chunk, NodeId(n));
    }
    table.set_home(chunk, home);
  });
}

}  // namespace clairfs
