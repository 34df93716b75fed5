// Divides the page cache that is given to staging among the readers of all plans.
//
// Readers that move share it equally. Those that have stopped keep an eighth of it together while others
// move, and all of it otherwise. No reader gets more than the others leave: a reader whose share has become
// smaller keeps the bytes that it holds until they are read. Only one that has stopped gives some back
// (plan/staging/make_room.cc).
#pragma once

#include <algorithm>
#include <cstdint>

namespace clairfs {

/// Readers and bytes, of all plans but those that stay in the page cache as a whole.
struct BudgetLoad {
  uint64_t budget = 0;
  uint64_t held = 0;  ///< by the other readers together: pushed or on its way, and not yet read
  uint64_t moving = 0;
  uint64_t idle = 0;
};

/// One part in this many goes to idle readers: enough to begin with when they go on.
inline constexpr uint64_t kIdleShare = 8;

/// The bytes that are due to one of the readers, whatever the others hold. REQUIRES: it is counted as moving
/// or idle.
constexpr uint64_t reader_share(const BudgetLoad& load, bool idle) {
  const uint64_t small = load.budget / kIdleShare / std::max<uint64_t>(load.idle, 1);
  return load.moving == 0 ? load.budget / load.idle
         : idle           ? small
                          : (load.budget - small * load.idle) / load.moving;
}

/// The bytes that one of the readers may hold: as much of its share as the others leave. REQUIRES: it is
/// counted as moving or idle.
constexpr uint64_t reader_budget(const BudgetLoad& load, bool idle) {
  return std::min(reader_share(load, idle), load.budget - std::min(load.budget, load.held));
}

}  // namespace clairfs
