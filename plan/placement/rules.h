// The rules by which a placement is made, each a step on its table. Pure functions in integer arithmetic, so
// that every node comes to the same.
#pragma once

#include <vector>

#include "plan/placement/job_uses.h"
#include "plan/placement/table.h"

namespace clairfs {

/// Gives every used chunk that fits a home, the most used ones first. REQUIRES: an empty table.
void place_homes(PlacementTable& table, const JobUses& uses);
/// Gives every chunk of records that fits a home: to each node a part of them from end to end, in proportion
/// to its room. REQUIRES: none of them has a home.
void place_segments(PlacementTable& table, const JobUses& uses);
/// Fills the room that is left with copies of chunks of records, each node beginning at the end of the part
/// it is home to. REQUIRES: no chunk without a home would fit.
void copy_segments(PlacementTable& table, const JobUses& uses);
/// Fills the room that is left with copies of what each node uses most. REQUIRES: no chunk without a home
/// would fit.
void place_copies(PlacementTable& table, const JobUses& uses);
/// The rule of NoPFS (Dryden et al., SC'21, section 5.1) in place of both: every node fills its tiers with
/// what it uses most, fastest first, without regard to the others. Its home is the holder that uses it most.
/// REQUIRES: an empty table.
void place_as_nopfs(PlacementTable& table, const JobUses& uses);
/// Takes everything from the nodes of `dead` (by rank) and finds new homes among the others: where there is a
/// copy, else where there is room, else in place of the least used copies. Nothing else moves.
void replace_dead(PlacementTable& table, const JobUses& uses, const std::vector<bool>& dead);

}  // namespace clairfs
