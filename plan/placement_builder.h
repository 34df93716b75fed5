// The rules by which a placement is made, each a step on its table. Pure functions: the same on every node.
// Integer arithmetic only; ties are broken by a hash of the chunk, so that load spreads evenly.
#pragma once

#include <vector>

#include "plan/job_uses.h"
#include "plan/placement_table.h"

namespace clairfs {

/// Gives every used chunk that fits a home. REQUIRES: an empty table.
void place_homes(PlacementTable& table, const JobUses& uses);
/// Fills the room that is left with copies of what each node uses most. A copy is never a node's only use of
/// a chunk's bytes to others: homes stay.
void place_copies(PlacementTable& table, const JobUses& uses);
/// Takes everything from the nodes of `dead` and finds new homes among the others.
void replace_dead(PlacementTable& table, const JobUses& uses, const std::vector<bool>& dead);

}  // namespace clairfs
