// SentinelChooser: which of the samples that are pushed are left open as sentinels.
//
// A pushed sample is read without a request, so nothing tells where the reader is. A sentinel lacks one page
// (PageLedger::sentinel_pages()), and the READ for that page tells. Few sentinels cost the reader little;
// many tell its place well. In a window of a thousand samples and more one in 128 is a sentinel, in a shorter
// one every window holds some. They come a little sooner than that, unevenly, so that they do not fall on one
// of several ranks alone, and the last sample of an epoch is one. Where none of many samples can be one
// (small records, of which others read the pages before) the next comes later: the tracker hears of the
// distances as they are.
#pragma once

#include <cstdint>

namespace clairfs {

/// Positions are absolute. Not thread-safe.
class SentinelChooser {
 public:
  /// A request for a sentinel costs a reader as much as several samples that need none, and a place known to
  /// 128 samples is good enough for a window of a thousand.
  static constexpr uint32_t kLongestGap = 128;

  /// The positions that are staged for a reader.
  struct Window {
    uint64_t high_water = 0;     ///< of the reader
    uint64_t staged = 0;         ///< everything before has been pushed
    uint64_t fetched = 0;        ///< everything before has been asked for
    uint64_t bytes = 0;          ///< of [high_water, fetched)
    uint64_t budget = 0;         ///< for them
    uint64_t most = UINT64_MAX;  ///< samples that it may hold
  };

  /// `readers` of the plan share the sentinels.
  explicit SentinelChooser(uint64_t readers) : readers_(readers) {}

  /// The reader is somewhere else: the next sentinel may be there.
  void restart(uint64_t position) { next_ = latest_ = position; }
  /// Chooses the gap between sentinels for what is pushed from now on.
  void choose_gap(const Window& window);
  /// Positions from one sentinel to the next, of what is pushed from now on.
  uint32_t gap() const { return gap_; }
  /// Whether the sample that is pushed next ought to be one.
  bool due(uint64_t position, bool last_of_epoch) const { return last_of_epoch || position >= next_; }
  /// Whether one has been due for so long that a worse one will do.
  bool late(uint64_t position) const { return position >= next_ + gap_; }
  /// Whether it is one. `possible`: its pages are staging's to leave out.
  bool choose(uint64_t position, bool last_of_epoch, bool possible);
  /// The widest gap among the samples that the reader has not passed yet: everything before `staged` has been
  /// pushed, and everything before `end` is about to be.
  uint32_t widest_gap(uint64_t staged, uint64_t end) const;

 private:
  const uint64_t readers_;
  uint64_t next_ = 0;
  uint64_t latest_ = 0;        // the last sentinel, or where the reader was before the first
  uint32_t gap_ = 1;           // for what is pushed now
  uint32_t widest_gap_ = 1;    // of what the reader has before it
  uint64_t widest_until_ = 0;  // position from which on `gap_` holds
};

}  // namespace clairfs
