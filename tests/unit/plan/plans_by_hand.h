// The turns of a PlanManager that has no threads of its own (PlanManager::Deps::by_hand).
#pragma once

#include <chrono>
#include <functional>

#include "plan/plan_manager.h"
#include "tests/support/moved_clock.h"

namespace clairfs {

inline constexpr int kManyTurns = 1000;  // what comes to an end takes some ten

/// One turn at `now`: what is being made, the planner's, or that of `inference`.
inline Turn take_turn(PlanManager& plans, TimePoint now) {
  if (plans.await_makings(std::chrono::minutes(1)) || plans.step_planner()) return {true, {}};
  return plans.step_inference(now);
}

/// Takes turns, in a time that stands still, until nothing is due; false if there is always something.
inline bool settle_plans(PlanManager& plans, TimePoint now) {
  int turns = 0;
  while (turns < kManyTurns && take_turn(plans, now).busy) ++turns;
  return turns < kManyTurns;
}

/// Takes turns until the condition holds. Time moves where nothing else is left than to wait for it. False:
/// the condition does not hold though nothing is left to do, or there is always something.
inline bool settle_plans_until(PlanManager& plans, MovedClock& clock,
                               const std::function<bool()>& condition) {
  for (int turns = 0; turns < kManyTurns; ++turns) {
    if (condition()) return true;
    const Turn turn = take_turn(plans, clock.time);
    if (turn.busy) continue;  // what this turn began may ask the clock on a thread of its own
    if (!turn.look_again) return condition();
    clock.time += *turn.look_again;
  }
  return false;
}

}  // namespace clairfs
