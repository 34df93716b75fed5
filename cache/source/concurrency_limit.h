// ConcurrencyLimit finds by trying how many operations the source is to get at once: no two filesystems like
// the same number.
//
// It begins small and doubles while that pays, as slow start of TCP does (RFC 5681, section 3.1), but by
// throughput: nothing is lost here. Then hill climbing on throughput: the limit takes a step in the direction
// that last helped, or turns round where it lost. More readers than a filesystem likes make it slower, fewer
// leave bandwidth unused; around the best value the limit keeps moving by one step, which costs little and
// follows changes (other jobs come and go).
//
// Throughput is not counted over time but follows from how long operations take (Little's law: k at once,
// each of which takes t, are k/t a second), with the lower quartile for t. A training job wants all
// processors: then some operations seem slow because no thread had a processor to see their end, and by a
// mean of those the limit of a source that answers after 10 ms stayed below 10 where 64 would have been
// served at once.
//
// Fetches count, of which one operation may bring several: more operations at once leave fewer that wait and
// are read together, so there are more operations for the same bytes, which ends none of them sooner.
//
// Why small: a filesystem that is busy serves in the order of arrival. Requests of a job's nodes beyond those
// that keep it busy only make a queue, in which urgent ones stand behind others.
#pragma once

#include <algorithm>
#include <vector>

#include "cache/base/clock.h"

namespace clairfs {

/// Not thread-safe: its owner calls it under a lock.
class ConcurrencyLimit {
 public:
  /// Starts at `initial`, stays within [least, most], and at `most` where that is less than `least`.
  ConcurrencyLimit(unsigned initial, unsigned least, unsigned most)
      : least_(std::min(least, most)), most_(most), limit_(std::clamp(initial, least_, most_)) {}

  unsigned value() const { return limit_; }

  /// An operation has ended; `took`: the time for each of the fetches that it brought, times the places that
  /// it took. `saturated`: others were waiting for a place, without which as many as the limit allows need
  /// not have been under way.
  void completed(Duration took, bool saturated);

 private:
  void adapt(double rate);
  void set(unsigned limit);

  const unsigned least_;
  const unsigned most_;
  unsigned limit_;
  bool starting_ = true;
  unsigned in_vain_ = 0;  // windows since the last doubling that did not show that it paid
  int direction_ = 1;
  double last_rate_ = 0;        // operations per second of the window before
  unsigned begun_before_ = 0;   // operations under way since before the limit's last change
  std::vector<Duration> took_;  // of the window so far
};

}  // namespace clairfs
