// FillLimit: a fetch that only fills a tier begins only while fewer operations than this are under way.
//
// Fills are to use what a source has idle. It serves others, too: other nodes of the job, whose readers may
// be waiting, and other programs. A node with nothing but fills to do does not see those wait. It sees that
// operations take longer than they did when the source was idle, and makes room: the number is halved while
// they take more than twice the least of the last ten to twenty minutes, and else grows by one (LEDBAT, RFC
// 6817, with the additive increase and multiplicative decrease of TCP). Operations are compared with those of
// about their size. Those that readers or plans need are judged, too, so that after a busy phase fills start
// with few. A source that has been busy for all that time seems idle.
//
// Throughput, by which ConcurrencyLimit finds its number, would not do: of a source that is busy whoever asks
// for more gets more, at the cost of the others.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "cache/base/clock.h"

namespace clairfs {

/// Not thread-safe: its owner calls it under a lock.
class FillLimit {
 public:
  /// One that the source works on, and one that is on its way meanwhile.
  static constexpr unsigned kLeast = 2;

  /// Starts at kLeast, and never exceeds `most` if that is not less.
  explicit FillLimit(unsigned most) : most_(most) {}

  unsigned value() const { return limit_; }
  /// An operation of so many bytes has ended, which took so long.
  void completed(uint64_t bytes, Duration took, TimePoint now);

 private:
  /// What operations of about the same size took.
  struct SizeClass {
    std::vector<double> costs;    // seconds a byte, of the operations of this window
    std::vector<double> windows;  // the windows' costs since the last that counted for the least
    double least = 0;             // of this period; 0: none yet
    double least_before = 0;      // of the period before
    TimePoint period_begin{};
  };
  bool is_slow(SizeClass& size, double cost, TimePoint now);

  const unsigned most_;
  unsigned limit_ = kLeast;
  unsigned begun_before_ = 0;  // operations that may have begun before the limit's last change
  std::array<SizeClass, 8> sizes_;
};

}  // namespace clairfs
