#include "tests/support/slowfs/server_model.h"

#include <algorithm>

namespace clairfs::slowfs {

ServerModel::ServerModel(uint64_t bandwidth, size_t max_parallel)
    : bandwidth_(bandwidth), places_(max_parallel) {}

TimePoint ServerModel::admit(TimePoint now, Duration latency, uint64_t bytes, Duration seek) {
  const auto place = std::min_element(places_.begin(), places_.end());
  TimePoint done = place == places_.end() ? now : std::max(now, *place);
  if ((bandwidth_ > 0 && bytes > 0) || seek > Duration::zero()) {
    const std::chrono::duration<double> transfer(
        bandwidth_ > 0 ? static_cast<double>(bytes) / static_cast<double>(bandwidth_) : 0);
    wire_free_ = std::max(wire_free_, done) + seek + std::chrono::duration_cast<Duration>(transfer);
    done = wire_free_;
  }
  done += latency;
  if (place != places_.end()) *place = done;
  return done;
}

}  // namespace clairfs::slowfs
