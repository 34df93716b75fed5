#include "plan/tracking/rank_trackers.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace clairfs {
namespace {

// Accesses in a row that are not its rank's and end a thread's binding. Strays of 5 % do so once in 10^5.
constexpr uint32_t kMostConfidence = 4;

// Accesses of a bound thread in a row that another rank has and its own has not: of an order that is
// neither's three in four may be such, if both epochs that are known hold the whole dataset.
constexpr uint32_t kTelling = 16;

// Accesses of strangers from which on they are a rank that began anew. Each access in order forgives half a
// one, shared among the other ranks: strays of 5 % do not add up, and one rank of many does.
constexpr double kStrangers = 8;
constexpr double kStrangersForgiven = 0.5;

// Accesses without one in order, after which a rank is silent: those of 64 ranks in step have one each.
constexpr uint64_t kSilent = 128;

// Threads remembered: the workers of 64 ranks, twice over. Each takes some tens of bytes.
constexpr size_t kMostThreads = 4096;

}  // namespace

RankTrackers::RankTrackers(std::vector<Tracker*> trackers)
    : trackers_(std::move(trackers)), matched_(trackers_.size()) {}

std::optional<size_t> RankTrackers::rank_of(ThreadId thread) const {
  const MutexLock lock(mutex_);
  const auto found = threads_.find(thread.value);
  return found == threads_.end() ? std::nullopt : found->second.rank;
}

RankTrackers::Observed RankTrackers::tell(size_t rank, Method method, std::span<const uint32_t> samples,
                                          Access kind, TimePoint now) {
  Tracker& tracker = *trackers_[rank];
  const uint64_t high_water = tracker.high_water();
  const TrackerState state = tracker.state();
  const Tracker::Observation seen = (tracker.*method)(samples, kind, now);
  const bool moved = tracker.high_water() != high_water || tracker.state() != state;
  return {seen.verdict, rank, moved, seen.position};
}

RankTrackers::Observed RankTrackers::offer(ThreadId thread, std::span<const uint32_t> samples, Access kind,
                                           TimePoint now) {
  if (trackers_.size() == 1) return tell(0, &Tracker::offer, samples, kind, now);
  Observed observed;
  const std::optional<size_t> bound = rank_of(thread);
  if (bound) observed = tell(*bound, &Tracker::offer, samples, kind, now);
  if (observed.verdict == Tracker::Verdict::out_of_order) {
    const std::optional<size_t> other = nearest(samples, kind, bound);
    if (other) observed = tell(*other, &Tracker::offer, samples, kind, now);
  }
  if (observed.verdict == Tracker::Verdict::in_order) note_match(thread, observed.rank);
  return observed;
}

RankTrackers::Observed RankTrackers::observe(ThreadId thread, std::span<const uint32_t> samples, Access kind,
                                             TimePoint now) {
  if (trackers_.size() == 1) return tell(0, &Tracker::observe, samples, kind, now);
  Observed observed = offer(thread, samples, kind, now);
  if (observed.verdict != Tracker::Verdict::out_of_order) return observed;
  Ranks holders;
  Ranks left;
  for (size_t rank = 0; rank < trackers_.size(); ++rank) {
    holders[rank] = trackers_[rank]->knows(samples);
    left[rank] = trackers_[rank]->is_left();
  }
  observed = tell(to_charge(thread, holders, left), &Tracker::observe, samples, kind, now);
  if (observed.verdict == Tracker::Verdict::in_order) note_match(thread, observed.rank);
  return observed;
}

// The rank that comes to one of the samples soonest, among those that expect one of them now.
std::optional<size_t> RankTrackers::nearest(std::span<const uint32_t> samples, Access kind,
                                            std::optional<size_t> but) {
  std::optional<size_t> found;
  uint64_t least = 0;
  for (size_t rank = 0; rank < trackers_.size(); ++rank) {
    if (rank == but) continue;
    const std::optional<uint64_t> distance = trackers_[rank]->distance(samples, kind);
    if (!distance || (found && *distance >= least)) continue;
    found = rank;
    least = *distance;
  }
  return found;
}

void RankTrackers::note_match(ThreadId thread, size_t rank) {
  const MutexLock lock(mutex_);
  matched_[rank] = ++accesses_;
  strangers_ = std::max(strangers_ - kStrangersForgiven / static_cast<double>(trackers_.size() - 1), 0.0);
  if (thread.value == 0) return;
  Thread& known = threads_[thread.value];
  known.seen = accesses_;
  if (known.rank == rank) {
    known.confidence = std::min(known.confidence + 1, kMostConfidence);
    known.run = 0;
    known.candidates.set();
  } else if (known.rank && known.confidence > 0) {
    --known.confidence;
  } else {
    known = {rank, 1, Ranks().set(), 0, accesses_};
  }
  forget_old();
}

// The rank that an access counts against which none of them expects; `holders` have the sample in an epoch
// that is known.
size_t RankTrackers::to_charge(ThreadId thread, const Ranks& holders, const Ranks& left) {
  const MutexLock lock(mutex_);
  ++accesses_;
  Thread unknown;
  Thread& known = thread.value == 0 ? unknown : threads_[thread.value];
  known.seen = accesses_;
  known.candidates &= holders;
  ++known.run;
  if (known.candidates.none()) {
    known.candidates = holders;
    known.run = 1;
  }
  const bool bound = known.rank.has_value();
  const bool anothers = bound && known.run >= kTelling && !known.candidates[*known.rank];
  if (bound && known.confidence > 0) --known.confidence;
  if (!bound) strangers_ = std::min(strangers_ + 1, 2 * kStrangers);
  const size_t rank = bound && !anothers                 ? *known.rank
                      : bound || strangers_ > kStrangers ? most_silent(known.candidates, left)
                                                         : least_silent();
  forget_old();
  return rank;
}

size_t RankTrackers::least_silent() const {
  return static_cast<size_t>(std::max_element(matched_.begin(), matched_.end()) - matched_.begin());
}

// Of these ranks, or of all if there are none of these: first those that have been silent for long, and of
// them those that are not known to have left the plan; then by the last access in order.
size_t RankTrackers::most_silent(const Ranks& candidates, const Ranks& left) const {
  using Key = std::tuple<bool, bool, uint64_t>;
  std::optional<size_t> found;
  Key least;
  for (size_t rank = 0; rank < matched_.size(); ++rank) {
    if (candidates.any() && !candidates[rank]) continue;
    const bool silent = matched_[rank] + kSilent < accesses_;
    const Key key{!silent, silent && left[rank], matched_[rank]};
    if (found && key >= least) continue;
    found = rank;
    least = key;
  }
  return found.value_or(0);
}

void RankTrackers::forget_old() {
  if (threads_.size() <= kMostThreads) return;
  const uint64_t now = accesses_;
  std::erase_if(threads_, [now](const auto& entry) { return entry.second.seen + kMostThreads / 2 < now; });
}

}  // namespace clairfs
