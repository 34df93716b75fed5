// How long a fetch from each place would take, and which place to take: learnt from the fetches that were
// made, not from a configuration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cache/base/clock.h"

namespace clairfs {

/// The time of a fetch over one path: latency + bytes in front of its end / bandwidth, where the bytes in
/// front are its own and those asked for before it and still on their way.
///
/// A weighted least-squares line through the recent fetches. A fetch counts half after eight others or five
/// seconds, so that the line follows changes of load; and beside them stand two made-up fetches that say what
/// is to be expected of a path that nobody has tried. They weigh little, but they stay: so a path that was
/// given up as bad is, some ten seconds later, thought worth a try again. Not thread-safe.
class PathModel {
 public:
  struct Prior {
    double latency = 0;    ///< seconds
    double bandwidth = 0;  ///< bytes a second
  };
  explicit PathModel(const Prior& prior);

  void completed(uint64_t bytes_in_front, Duration took, TimePoint now);
  Duration predict(uint64_t bytes_in_front, TimePoint now) const;
  Duration latency(TimePoint now) const { return predict(0, now); }
  double bandwidth(TimePoint now) const;  ///< bytes a second

 private:
  /// Sums over fetches of weight, x, y, x*x, x*y; x in bytes, y in seconds.
  struct Sums {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    void add(double weight, double px, double py);
    void scale(double by);
  };
  struct Line {
    double latency = 0;
    double per_byte = 0;
  };
  Line line(TimePoint now) const;
  double age(TimePoint now) const;

  Sums prior_;
  Sums seen_;
  TimePoint last_{};
};

/// When the PFS is asked for what some living node holds.
struct ChoiceRule {
  /// Every byte is to leave the PFS once: a node that is only busy must not drive others there. So the best
  /// node must take this many times as long as the PFS would ...
  double factor = 8;
  /// ... and longer than a node takes whose processor is overcommitted (the net thread then waits some
  /// scheduling quanta of a few milliseconds each for its turn) or whose network is congested for a moment.
  Duration floor = std::chrono::milliseconds(250);
};

/// Which of the living holders to ask, given the predicted time of each; nothing: the PFS.
std::optional<size_t> choose_source(std::span<const Duration> holders, Duration pfs, const ChoiceRule& rule);

}  // namespace clairfs
