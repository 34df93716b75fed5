// A scan finds by trying how many threads are to read the source's attributes.
//
// A thread waits for one answer at a time, so a scan is as fast as there are threads, until the metadata
// server or this machine has no more to give. Their number doubles while that brings half as much again.
#pragma once

#include <cstdint>

#include "cache/base/clock.h"

namespace clairfs {

/// A PFS answers each call after a network round trip, so that several should be under way; more than 64 from
/// one node is rarely kind to others.
struct ScanThreads {
  unsigned first = 8;  ///< to begin with, at least 1
  unsigned most = 64;  ///< less than `first` is `first`
};

/// How long some looks at the source took, one after the other.
struct ScanProbe {
  unsigned looks = 0;
  Duration passed{};     ///< on the clock
  Duration computing{};  ///< of them, CPU time of the thread
};

/// The threads to begin with after such looks: all of them if each waited as long as for an answer over a
/// network. Then they are not in each other's way here, and to find their number by trying takes longer than
/// a look at a hundred thousand entries.
ScanThreads widened(ScanThreads threads, const ScanProbe& probe);

/// Not thread-safe.
class ScanPace {
 public:
  explicit ScanPace(ScanThreads threads) : most_(threads.most), threads_(threads.first) {}

  unsigned threads() const { return threads_; }
  /// `done` entries since the beginning. To be called ten times a second or so; calls that come sooner say
  /// nothing.
  void observe(uint64_t done, TimePoint now);

 private:
  const unsigned most_;
  unsigned threads_;
  bool growing_ = true;
  bool begun_ = false;
  double last_rate_ = 0;  // entries per second of the period before
  uint64_t done_ = 0;     // when this period began
  TimePoint since_{};
};

}  // namespace clairfs
