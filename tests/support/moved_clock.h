// A clock that stands still until a test moves it.
#pragma once

#include <chrono>

#include "cache/base/clock.h"

namespace clairfs {

/// Not thread-safe: moved while nobody else asks it.
class MovedClock final : public Clock {
 public:
  TimePoint now() const override { return time; }
  TimePoint time = TimePoint{} + std::chrono::seconds(1000);
};

}  // namespace clairfs
