// Relocator: finds a reader again that has gone somewhere else in its plan.
//
// All along, observations out of order are compared with every known epoch (plan/tracking/chain.h). A chain
// that chance does not explain says where the reader is. Three things may speak against it:
//
// - A suspended plan pushes nothing, so all that the reader opens is seen: the chain must explain most of it.
// - A reader that left samples out of the plan (twice the world size) follows its order for ever. After that
//   the chain must be without gaps. Gaps show where opens stray no more, so the samples of as many sightings
//   are kept for it as span the reorder window on both sides of such a stretch.
// - While the plan is followed, another program may read the same files in order: the chain must be longer
//   than what was seen in order meanwhile.
//
// Epochs may have the same order, and then explain equally much. A reader that is followed has rather skipped
// ahead within its epoch than gone to another one. Else the earliest counts: a job that is started again
// begins there.
//
// Of epochs that are shorter than twice the sightings a suspended plan is also found by a run, over several
// epochs in the end: a chain may not be longer there than chance explains.
//
// A search costs some tens of microseconds, where READs may be of several samples some hundred, and comes
// once in four observations out of order.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "plan/tracking/chain.h"
#include "plan/tracking/known_epochs.h"
#include "plan/tracking/tracker_status.h"

namespace clairfs {

/// Where a reader was found.
struct Found {
  Epoch epoch;
  Chain chain;
};

/// Not thread-safe.
class Relocator {
 public:
  /// How the reader's opens may stray: by `reorder_window` positions, and where sentinels alone are seen, one
  /// of them in `gap` positions (0: nothing was pushed yet). `next`: one past the furthest absolute position
  /// that was seen.
  struct Sight {
    int64_t reorder_window = 1;
    int64_t gap = 0;
    int64_t next = 0;
  };

  /// The observation in order at that tick (OrderScore::observations()).
  void note_match(uint64_t tick);
  void note_stray(const Sighting& sighting);
  /// Whether from now on only a reader that leaves nothing out is found.
  void require_all(bool required = true);
  /// The reader was found: what was seen before says no more where it is.
  void clear();

  /// Whether a search is due, after a stray.
  bool is_due() const;
  /// Looks for the reader in all epochs.
  std::optional<Found> find(const KnownEpochs& epochs, TrackerState state, Sight sight);
  /// The newest observations out of order, in the order of time.
  const std::deque<Sighting>& strays() const { return strays_; }

 private:
  static std::optional<Found> find_in_row(const KnownEpochs& epochs, const std::vector<Sighting>& strays,
                                          int64_t reorder_window);
  bool leaves_nothing_out(const SequencePositions& order, const Chain& chain, int64_t reorder_window);

  std::deque<Sighting> strays_;         // the newest kSightings
  std::deque<uint32_t> samples_;        // while all are required: of the newest strays, as many as it takes
  size_t unchecked_ = 0;                // strays since they were looked through
  std::deque<uint64_t> matched_ticks_;  // of the newest kSightings in order
  uint64_t since_search_ = 0;
  bool requires_all_ = false;
};

}  // namespace clairfs
