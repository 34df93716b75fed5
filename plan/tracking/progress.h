// Progress: where a reader is and how fast it is, from the samples that were seen opened.
//
// Of W workers, worker b mod W opens batch b, and batch b + prefetch * W is handed out when batch b was
// delivered. So when position q has been opened, everything up to q - the reorder window was delivered, and
// therefore opened. The high-water mark is the furthest position seen opened. The safe position lies the
// reorder window before the furthest but one: a single stray access that happens to lie close ahead does not
// move it, and pages below it may be dropped.
//
// An open at p can be the reader's if high_water - the reorder window - leap <= p <= high_water + leap, with
// leap = the reorder window + the positions that may pass unseen. The lower bound tolerates a high-water mark
// that one stray access moved too far.
//
// An open before the safe position is late. Late opens among others are those of ranks that do not wait for
// each other and drift apart: the reorder window grows to the distance that is seen, and shrinks by half of
// the growth with each epoch. It grows to an eighth of the epoch at most: of a short epoch a reader in any
// order opens samples that seem late, and with each growth more of them would seem to be in order. Late opens
// alone, where few of the newest opens lie near the high-water mark, show that it was a stray access and
// never the reader's: it goes back to the furthest of them. Where many do, a worker that lags goes through a
// batch.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "cache/base/clock.h"

namespace clairfs {

/// Positions are absolute: they count on from epoch to epoch. They are signed, since a band may begin before
/// the plan. Not thread-safe.
class Progress {
 public:
  /// Positions from `low` to `high`, both included.
  struct Band {
    int64_t low = 0;
    int64_t high = 0;
  };

  /// `reorder_window` as AccessSequence::reorder_window(); at least 1 is assumed.
  explicit Progress(uint64_t reorder_window);

  /// The reader is expected at `next`.
  void begin(int64_t next);
  /// The epoch that the reader is in has so many positions.
  void set_epoch_length(int64_t length);
  /// Where an open may be the reader's, if up to `unseen` positions in a row go unseen.
  Band band(int64_t unseen) const;
  /// The reader opened the sample at `position` at `now`. Returns how many positions the high-water mark
  /// advanced.
  int64_t note(int64_t position, TimePoint now);
  /// The reader is in the epoch that begins there: it has left the one before.
  void enter_epoch(int64_t begin);
  /// The reader was found somewhere else: with the furthest position opened, and the furthest but one.
  void jump(int64_t high_water, int64_t second);
  /// Opens stray by as many positions, more than was planned.
  void widen(uint64_t reorder_window);
  /// The epoch that the reader is in has moved by `by` positions, and the reader with it.
  void shift(int64_t by);

  /// One past the furthest position opened.
  int64_t next() const { return high_water_ + 1; }
  /// Everything below has been opened.
  int64_t safe() const { return confirmed_high_water_ + 1 - reorder_window_; }
  /// Positions that an open may stray from its place: as planned, and as widened by what was seen.
  int64_t planned_slack() const { return planned_slack_; }
  int64_t reorder_window() const { return reorder_window_; }
  /// Positions that the high-water mark advanced since the start.
  uint64_t passed() const { return passed_; }
  /// The largest distance of an open behind the high-water mark.
  uint64_t longest_stray() const { return longest_stray_; }
  /// 0: not known yet.
  double samples_per_second() const { return seconds_per_sample_ > 0 ? 1 / seconds_per_sample_ : 0; }

 private:
  void note_late(int64_t position);
  void grow();
  bool is_supported() const;
  void note_pace(int64_t positions, TimePoint now);

  int64_t planned_slack_;
  int64_t reorder_window_;
  int64_t widest_ = INT64_MAX;         // that late opens make the reorder window
  int64_t high_water_ = -1;            // furthest position opened
  int64_t confirmed_high_water_ = -1;  // furthest but one
  uint64_t passed_ = 0;
  uint64_t longest_stray_ = 0;

  // Opens from before safe().
  uint32_t late_in_a_row_ = 0;
  double late_score_ = 0;
  int64_t late_low_ = 0;
  int64_t late_top_ = 0;
  std::deque<int64_t> newest_;  // positions of opens

  double seconds_per_sample_ = 0;
  double paced_ = 0;  // samples that it is made of
  std::optional<TimePoint> advanced_at_;
};

}  // namespace clairfs
