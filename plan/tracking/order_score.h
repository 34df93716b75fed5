// OrderScore: whether a reader still follows its plan, from how many observations are in order.
//
// Strays. An observation out of order adds 1 to a score, one in order takes 0.5 / v away, never to below 0 (a
// cumulative sum: Page, Continuous Inspection Schemes, Biometrika 41, 1954), v being the share of samples
// that are seen. Another process's stray access to a file that was not pushed is always seen, while the
// reader's own accesses are seen at sentinels only: of 100 observations 70 may be strays though only one open
// in 20 was. Divided by v, strays of 5 % of the opens weigh a tenth of what is in order, whatever v is. A
// wrong order adds up even if a third of it lies in order by chance or, as with half the world size, half of
// it by nature.
//
// Where every open is seen, v is 1: positions that are passed over say that the order is wrong, and must not
// count for it. Most of a short epoch may lie in order by chance then. So an observation in order takes away
// no more than it weighs against one that is not (Wald, Sequential Tests of Statistical Hypotheses, 1945):
// log(0.95 / c) / log((1 - c) / 0.05), c being the chance that an access by a reader of another order lies in
// order.
//
// The plan fails at a score of 40, or at 12 if every open is seen, where observations in order do not come in
// bursts.
//
// Holes. A reader that leaves samples out (twice the world size) is always in order. It is told by the
// positions that it passed over and did not come back to, if every open is seen and as soon as these are more
// than the reorder window. A stray access ahead of the reader passes over positions, too, which the reader
// comes to later. So this is the cheap half of it: the tracker looks then whether positions that are overdue
// went unseen (Tracker::leaves_out()), and asks again a little later if not.
#pragma once

#include <cstdint>
#include <optional>

namespace clairfs {

/// How an access was seen: as a read; of records, also as one that goes on where the thread's last one ended,
/// or has done so for long (ReadRuns); or as an open that a read may or may not follow.
enum class Access : uint8_t { read, read_on, read_through, open };

/// Counts distinct observations: several accesses to a sample in a row are one. Not thread-safe.
class OrderScore {
 public:
  /// A sample was seen in order; `chance`: the share of the epoch that would have been. Call passed() after
  /// each, with the positions by which the high-water mark has advanced since the one before.
  void in_order(Access kind, double chance);
  void passed(int64_t positions);
  void out_of_order(Access kind);
  /// The reader was found, or came to the plan's end: what was seen before counts no more.
  void clear() { score_ = holes_ = 0; }
  void forget_holes() { holes_ = 0; }
  /// left_out() is wrong, or too early: it says so again after a few more.
  void doubt_left_out();

  /// Observations since the start.
  uint64_t observations() const { return observations_; }
  /// Whether each access in order begins with an open, as with the ioctl of CPython before 3.14.
  bool every_open() const;
  /// Whether everything so far began with an open; nothing may have been seen yet.
  bool only_opens() const { return opens_ == static_cast<double>(observations_); }
  /// Share of the last few hundred positions that was seen: above 0 and at most 1.
  double observed_fraction() const;
  /// Whether strays outweigh what was in order of late.
  bool in_doubt() const { return score_ > 0; }
  /// Whether strays are too many. `pushed`: some samples ahead of the reader lie in the page cache.
  bool fails(bool pushed, int64_t reorder_window) const;
  /// Samples left out, beyond the reorder window, that are too many.
  static constexpr int64_t kLeftOut = 32;
  /// How many samples the reader has left out, if those are too many.
  std::optional<uint64_t> left_out(int64_t reorder_window) const;

 private:
  uint64_t observations_ = 0;
  double opens_ = 0;  // observations that began with an open

  // The last few hundred positions: how much of them was seen.
  double recent_passed_ = 0;
  double recent_seen_ = 0;
  double recent_opens_ = 0;

  double score_ = 0;
  double holes_ = 0;  // with every open seen: positions passed over, less those opened later
};

}  // namespace clairfs
