// A place in a plan as people name it.
#pragma once

#include <compare>
#include <cstdint>

#include "cache/base/types.h"

namespace clairfs {

/// The position may be the epoch's length: at its end.
struct PlanPosition {
  Epoch epoch;
  uint32_t position = 0;

  auto operator<=>(const PlanPosition&) const = default;
};

}  // namespace clairfs
