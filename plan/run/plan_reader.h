// One order of a plan that is followed on this node by itself: that of a training rank, or that of all ranks
// of the node together where they cannot be told apart (AccessSequence::readers()). Its epochs as they become
// known, and how far it has been read.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "cache/chunks/tier_policy.h"
#include "cache/memory/ram_arena.h"
#include "plan/sequence/timeline.h"
#include "plan/tracking/tracker.h"

namespace clairfs {

/// Thread-safe, except that begin() and prepare() are for one thread (the planner's).
class PlanReader {
 public:
  /// Makes an epoch of this order; `base` is left to the reader. Errors: what making the order said.
  using MakeEpoch = std::function<Result<PlannedEpoch>(Epoch epoch)>;

  /// How an order is read, as AccessSequence describes it.
  struct Ways {
    uint64_t reorder_window = 1;
    std::optional<uint64_t> leap{};
    uint64_t streams = 0;
  };

  /// `last`: the job ends after this epoch.
  PlanReader(std::shared_ptr<const SampleIndex> index, const Ways& ways, std::optional<Epoch> last);

  /// Stands for this order where the cache hands on what a fetch is for.
  OrderId order() const { return order_; }
  const SampleIndex& index() const { return *index_; }
  /// So many of the samples that were seen last may still be being read; 0: what was seen is as good as read.
  uint64_t streams() const { return streams_; }
  /// More than a reader of whole records asks for in a row: a page that is left over at the end of a READ, or
  /// that a record shares with one that is in the page cache.
  static constexpr uint32_t kManyPages = 16;
  /// A READ of this order's samples asked for so many bytes, and for no sentinel.
  void note_read(uint64_t length) {
    if (length > kPageSize) {
      single_pages_ = 0;
    } else if (single_pages_ < kManyPages) {
      ++single_pages_;
    }
  }
  /// Whether the last kManyPages of them asked for a single page each. So do readers who have mapped a file
  /// of records: for each page that is not there.
  bool reads_by_pages() const { return single_pages_ >= kManyPages; }
  Tracker& tracker() { return tracker_; }
  const Tracker& tracker() const { return tracker_; }

  Timeline timeline() const;

  /// Makes the first epoch. Once, before all else. Errors: those of `make`.
  Status begin(Epoch first, const MakeEpoch& make);
  /// Brings the timeline round the reader up to date: its own epoch and the next; between them, until the
  /// reader is well in its own, the one before instead of the next, so that two are held at a time. (Short
  /// epochs: all three.) True if something changed. Errors: those of `make` (the plan cannot go on).
  Result<bool> prepare(const MakeEpoch& make);
  /// Whether prepare() has something to do.
  bool wants_preparation() const;

  /// Of orders and derived arrays.
  uint64_t memory_bytes() const;

 private:
  /// The work that prepare() has to do.
  struct Wanted {
    Epoch current;           ///< the reader's epoch
    bool elsewhere = false;  ///< it is not in the timeline
    bool drop = false;       ///< epochs before `keep`
    Epoch keep;
    bool next = false;  ///< the epoch after `current`
  };
  Wanted wanted() const;
  Result<std::shared_ptr<const PlannedEpoch>> plan_epoch(Epoch epoch, uint64_t base, const MakeEpoch& make);
  void drop_first(Timeline& timeline);
  void publish(Timeline timeline);

  const OrderId order_;
  const std::shared_ptr<const SampleIndex> index_;
  const std::optional<Epoch> last_;
  const uint64_t streams_;
  Tracker tracker_;                        // self-synchronised
  std::atomic<uint32_t> single_pages_{0};  // READs in a row; a little more where threads count at once

  mutable Mutex mutex_;  // leaf
  Timeline timeline_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
