// Keeps a number of requests in flight for a limited time, and adds up what they moved.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"

namespace clairfs {

struct PumpLimits {
  unsigned in_flight = 1;
  Duration time = std::chrono::seconds(2);
  uint64_t bytes = uint64_t{1} << 30;
};

struct PumpResult {
  uint64_t requests = 0;
  uint64_t bytes = 0;
  double seconds = 0;
  uint64_t failed = 0;
  std::optional<Error> first_failure;

  double mb_per_second() const { return seconds > 0 ? static_cast<double>(bytes) / (1 << 20) / seconds : 0; }
};

/// Called by a request when it is done, from any thread, exactly once: bytes moved, or the error.
using PumpDone = std::function<void(Result<uint64_t>)>;
/// Starts the next request, which uses buffer number `slot` (below in_flight) alone; false: there is none
/// left.
using PumpStart = std::function<bool(unsigned slot, PumpDone done)>;

/// Starts requests until a limit is reached or none is left, then waits for those in flight. Errors:
/// ETIMEDOUT when one is not done a minute after the end; it may still be, so that what it uses must stay.
Result<PumpResult> run_pump(const PumpLimits& limits, const Clock& clock, const PumpStart& start);

}  // namespace clairfs
