// Threads that share a queue of work and take turns, as the published simulator has them: thread k takes the
// items k, k + p, k + 2p, ...
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace clairfs {

/// Seconds. A value.
class ThreadClocks {
 public:
  explicit ThreadClocks(uint32_t threads, double start = 0) : clocks_(threads, start) {}

  /// When the thread whose turn it is can begin.
  double next_start() const { return clocks_[next_]; }
  /// It is done at `time`; the next one's turn.
  void finish(double time) {
    clocks_[next_] = time;
    next_ = (next_ + 1) % clocks_.size();
  }
  /// The thread whose turn it is works for `seconds`; returns when it is done.
  double work(double seconds) {
    const double done = clocks_[next_] + seconds;
    finish(done);
    return done;
  }
  /// No thread begins before `time`.
  void not_before(double time) {
    for (double& clock : clocks_) clock = std::max(clock, time);
  }
  /// When the last is done.
  double last() const { return *std::max_element(clocks_.begin(), clocks_.end()); }

 private:
  std::vector<double> clocks_;
  size_t next_ = 0;
};

}  // namespace clairfs
