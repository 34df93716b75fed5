// Predicts how long a fetch from each place would take, and chooses one. It learns from the fetches that were
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
/// seconds, so that the line follows changes of load. Those that end at nearly the same time count like one:
/// after a machine stood still for a moment, all that was under way ends late together, which says little.
/// Two made-up fetches are added, which say what is to be expected of a path that was not tried yet. They
/// weigh little, but they stay: so a path that was given up as bad is, some ten seconds later, thought worth
/// a try again. Not thread-safe.
class LatencyModel {
 public:
  struct Prior {
    double latency = 0;    ///< seconds
    double bandwidth = 0;  ///< bytes a second
  };
  explicit LatencyModel(const Prior& prior);

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

/// Tells a path that is slow from one that stood still for a moment: slow is one that has brought nothing but
/// slow fetches for some seconds. Not thread-safe.
class SlowPeerDetector {
 public:
  explicit SlowPeerDetector(Duration slow_fetch) : slow_fetch_(slow_fetch) {}
  void completed(Duration took, TimePoint now);
  bool slow() const;
  /// Now and then a slow path is to be tried again: true once in a while.
  bool take_trial(TimePoint now);

 private:
  const Duration slow_fetch_;
  std::optional<TimePoint> first_slow_;  // since the last fast one
  TimePoint last_slow_{};
  TimePoint last_trial_{};
};

/// When the PFS is asked for what some living node holds. Every byte is to leave the PFS once: a node that is
/// only busy must not drive others there.
struct FallbackRule {
  /// The best node must be slow (SlowPeerDetector), and be predicted to take this many times as long as the
  /// PFS.
  double factor = 4;
};

/// The state of a living holder's path.
struct HolderPath {
  Duration predicted{};
  bool slow = false;
};

/// Which of the living holders to ask; nothing: the PFS.
std::optional<size_t> choose_source(std::span<const HolderPath> holders, Duration pfs,
                                    const FallbackRule& rule);

}  // namespace clairfs
