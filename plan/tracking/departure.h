// Departure follows how a reader leaves its plan, from the first stray to the report.
//
// The run. When the order comes into doubt (OrderScore::in_doubt()) a run of strays begins. It says where the
// reader was, what was due there and what came instead, and counts what is in order and out of order from
// then on. Nothing comes of most runs: what is in order outweighs them, and the next doubt begins another. A
// run becomes a Divergence, for reports, when the reader is found somewhere else (Relocator) or the plan is
// suspended. The tracker decides both.
//
// The place of a run is the high-water mark at its first stray, but only of a reader that is followed for
// certain: it was found, or had 8 observations in order, and its order is in no doubt. A rank that waits
// takes for its own what lies in a band of the plan (Progress::band()). An open of another order lies there
// once in some hundred times, so 8 are no accident. Before, what seemed to be in order may have been so by
// chance. The place then is that of the first doubt.
//
// Flutter. Some workers that the plan does not tell of read in several places of the order at a time. Their
// reader is found in one of the places after the other, and leaves each at once. The third time within 256
// observations it is not where it was found, and the run is the first of these again. A reader that was
// restarted is found once, and one that looks elsewhere and comes back twice; 256 observations are four times
// those that it is found by (kSightings).
//
// Diagnosis. diagnose() is to say why the reader left, once the plan is suspended. It is asked for at once,
// and a second time 128 observations later, since the first time may be too early: what was pushed when the
// reader left hid a part of what it opened. By then the newest 64 observations (kSightings) are from after
// the pushed pages were dropped, which takes milliseconds.
//
// Evidence. diagnose() compares the newest observations of the run with other orders. For the search of a
// seed that is too late: it wants the first opens of another order, and not those of the plan before. So 64
// observations around the suspension are kept, also where they seemed to be in order: the newest before it,
// and then the first after it. A reader that never followed the plan shows its first opens so. One that was
// followed for certain up to an epoch's beginning went another way there: of it only the run is kept.
//
// For good. A dataset may look for its samples before it reads them: at the headers of all its files, at some
// of them twice. That suspends the plan, and the reader comes later. So it has left for good only if it goes
// through files (Access::read_through), or if the run has more observations than there are samples and a
// quarter of them again.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "plan/tracking/chain.h"
#include "plan/tracking/known_epochs.h"
#include "plan/tracking/order_score.h"
#include "plan/tracking/tracker_status.h"

namespace clairfs {

/// Ticks are distinct observations since the start (OrderScore::observations()); they never go back. Places
/// are in the epochs of the plan. Nothing costs more than two look-ups there, or a copy of kSightings
/// observations. Not thread-safe.
class Departure {
 public:
  /// A run begins with the tick-th observation, which was of `sample` while the reader was at `at`. The
  /// caller counts that first stray, too (note_out_of_order()).
  void begin(const KnownEpochs& epochs, uint32_t sample, PlanPosition at, uint64_t tick);
  /// A run begins for a reader whose strays say nothing, but which has left out so many samples before `at`.
  /// All observations so far belong to it.
  void begin_left_out(const KnownEpochs& epochs, PlanPosition at, uint64_t samples);
  /// An observation in order while the order is in doubt.
  void note_in_order() { ++run_.in_order; }
  void note_out_of_order();
  /// The order is in no doubt, and so many observations were in order since the start, or since the reader
  /// was found.
  void note_no_doubt(uint64_t in_order);

  /// The reader was found by the tick-th observation, while its plan was followed. Returns whether that was
  /// too often. Then the reader is not there, and the run is again the first of those after which it was
  /// found.
  bool flutters(uint64_t tick);
  /// The reader left for `where`, and is followed for certain. `hint`: for people.
  void note_found(PlanPosition where, std::string hint);
  /// The plan is suspended with the tick-th observation. `lately`: the newest ones, in the order of time.
  void note_suspended(std::string hint, uint64_t tick, const std::deque<Sighting>& lately);
  /// While the plan is suspended: takes each access, and each distinct observation.
  void note_after(Access kind) { goes_through_ = goes_through_ || kind == Access::read_through; }
  void note_after(const Sighting& sighting);

  /// The run's place.
  PlanPosition place() const { return run_.at; }
  /// Whether the reader is followed for certain, while the plan is followed.
  bool certain() const { return certain_; }
  /// Whether the reader has left for good after the tick-th observation, while the plan, of a dataset of so
  /// many samples, is suspended.
  bool for_good(uint64_t samples, uint64_t tick) const;
  /// The first observation out of order; no verdict in it.
  const std::optional<Divergence>& first_difference() const { return first_difference_; }
  /// The last time that the reader left the plan.
  const std::optional<Divergence>& divergence() const { return divergence_; }

  /// Whether diagnose() is to say why the plan is suspended, after the tick-th observation.
  bool wants_diagnosis(uint64_t tick) const { return diagnoses_left_ > 0 && tick >= diagnose_at_; }
  /// The observations of the run, of `lately`, which are in the order of time.
  std::vector<Sighting> evidence(const std::deque<Sighting>& lately) const;
  /// Observations around the last suspension, kSightings at most.
  const std::vector<Sighting>& around_suspension() const { return around_suspension_; }
  /// Takes what diagnose() found. Returns whether that is news: the first finding, or another one.
  bool set_hint(std::string hint);

 private:
  void start(const KnownEpochs& epochs, PlanPosition at, uint64_t tick);

  Divergence run_;
  uint64_t since_ = 0;  // tick of its first stray
  bool certain_ = false;
  std::optional<PlanPosition> doubted_;  // where the order came into doubt since the reader was certain

  // The run after which the reader was found for the first of the newest times.
  Divergence flutter_run_;
  uint64_t flutter_since_ = 0;
  uint32_t found_lately_ = 0;  // times since then

  std::optional<Divergence> first_difference_;
  std::optional<Divergence> divergence_;

  // Of the last suspension.
  bool goes_through_ = false;  // files, since then
  std::vector<Sighting> around_suspension_;
  bool diagnosed_ = false;
  uint32_t diagnoses_left_ = 0;
  uint64_t diagnose_at_ = 0;  // tick from which on the next is wanted
};

}  // namespace clairfs
