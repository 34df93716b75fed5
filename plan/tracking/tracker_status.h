// A tracker's report on its reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/sequence/plan_position.h"

namespace clairfs {

enum class TrackerState : uint8_t { waiting, following, suspended, finished };
/// As status and logs say it.
std::string_view to_string(TrackerState state);

/// Where the observed order left the plan.
struct Divergence {
  PlanPosition at;                    ///< where the reader was
  std::optional<uint32_t> expected;   ///< sample that would have been next; nullopt: at the plan's end
  std::optional<uint32_t> seen;       ///< sample that came first instead; nullopt: `expected` was passed over
  std::optional<PlanPosition> due;    ///< where the plan has `seen`: in an epoch that is known, next to `at`
  uint64_t left_out = 0;              ///< samples passed over, where there is no `seen`
  uint64_t out_of_order = 0;          ///< observations out of order until it was clear
  uint64_t in_order = 0;              ///< observations in order among them
  std::optional<PlanPosition> found;  ///< where the reader was found; nullopt: it was not
  std::string hint;                   ///< for people
};

struct TrackerStatus {
  TrackerState state = TrackerState::waiting;
  PlanPosition position;          ///< the place of Tracker::position()
  PlanPosition high_water;        ///< the place of Tracker::high_water()
  double samples_per_second = 0;  ///< 0: not known yet
  uint64_t reorder_window = 0;    ///< positions, as widened by what was seen
  // For `plan check`, since the start:
  uint64_t in_order = 0;        ///< distinct observations that matched the plan
  uint64_t out_of_order = 0;    ///< ... and that did not
  uint64_t after_end = 0;       ///< ... of these, when the plan had ended, with all of its end seen where
                                ///< every open is; not in out_of_order_since
  uint64_t repeated = 0;        ///< of a sample that was seen just before
  uint64_t passed = 0;          ///< positions that the reader went over
  uint64_t longest_stray = 0;   ///< positions behind the high-water mark, of an observation in order, at most
  uint64_t in_order_since = 0;  ///< the first two since the reader was last found again, or since the start
  uint64_t out_of_order_since = 0;
  uint64_t realignments = 0;
  uint64_t suspensions = 0;
  std::optional<Divergence> first_difference;  ///< the first observation out of order; no verdict in it
  std::optional<Divergence> divergence;        ///< the last time that the reader left the plan
};

/// Whether the reader goes the way of the plan: all that was seen, but for a few strays of others, since the
/// start or at least for long since it was last found again. Observations after the plan's end do not count.
bool follows(const TrackerStatus& status);

/// Why a reader may read an epoch from the beginning a second time.
std::string hint_of_epoch_again(Epoch epoch);

/// Of two readers of one plan together, as PlanRun::status() says; the differences are those of one of them.
TrackerStatus combined(const TrackerStatus& a, const TrackerStatus& b);

}  // namespace clairfs
