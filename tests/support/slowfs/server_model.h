// When a slow file server would answer: latency that overlaps between requests, a wire that all of them
// share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/base/clock.h"

namespace clairfs::slowfs {

/// A server in virtual time: each request is told on arrival when it will be answered. Requests wait for one
/// of `max_parallel` places (in order of arrival), then for their turn on the wire (which one that seeks
/// keeps for itself meanwhile), then for their latency.
/// Not thread-safe.
class ServerModel {
 public:
  /// `bandwidth` in bytes/s over all requests, 0: unlimited. `max_parallel` requests in service at once,
  /// 0: unlimited.
  ServerModel(uint64_t bandwidth, size_t max_parallel);

  /// When a request that arrives at `now`, has `latency` of its own and moves `bytes` over the wire, for
  /// which the disk seeks for `seek` first, is answered. REQUIRES: `now` does not decrease from call to call.
  TimePoint admit(TimePoint now, Duration latency, uint64_t bytes, Duration seek = {});

  /// For requests admitted from now on.
  void set_bandwidth(uint64_t bandwidth) { bandwidth_ = bandwidth; }

 private:
  uint64_t bandwidth_;
  std::vector<TimePoint> places_;  ///< when each place is free again
  TimePoint wire_free_{};
};

}  // namespace clairfs::slowfs
