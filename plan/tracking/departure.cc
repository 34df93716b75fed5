#include "plan/tracking/departure.h"

#include <algorithm>
#include <utility>

namespace clairfs {
namespace {

// Observations in order, without doubt, from which on a reader follows its plan for certain: of readers that
// go another way each is in the band of a rank that waits once in some hundred times.
constexpr uint64_t kSure = 8;

// Times that a reader was found again within so many observations, from which on it is not where it was
// found.
constexpr uint32_t kFoundOften = 3;
constexpr uint64_t kFlutter = 256;

// Distinct observations after a suspension, when all of kSightings are from after the pages of what was
// pushed were dropped: that takes milliseconds.
constexpr uint64_t kSeenWhole = 2 * kSightings;

}  // namespace

// Before the reader is followed for certain the place is that of the first doubt: what seemed to be in order
// since may have been so by chance.
void Departure::start(const KnownEpochs& epochs, PlanPosition at, uint64_t tick) {
  run_ = Divergence();
  since_ = tick;
  run_.at = at;
  if (!certain_) run_.at = *(doubted_ = doubted_.value_or(at));
  run_.expected = epochs.sample_at(run_.at);
}

void Departure::begin(const KnownEpochs& epochs, uint32_t sample, PlanPosition at, uint64_t tick) {
  start(epochs, at, tick);
  run_.seen = sample;
  run_.due = epochs.nearest_use(sample, run_.at);
}

void Departure::begin_left_out(const KnownEpochs& epochs, PlanPosition at, uint64_t samples) {
  start(epochs, at, 0);
  run_.left_out = samples;
}

void Departure::note_out_of_order() {
  if (!first_difference_) first_difference_ = run_;
  ++run_.out_of_order;
}

void Departure::note_no_doubt(uint64_t in_order) {
  if (in_order < kSure) return;
  certain_ = true;
  doubted_.reset();
}

bool Departure::flutters(uint64_t tick) {
  if (found_lately_ == 0 || tick > flutter_since_ + kFlutter) {
    flutter_run_ = run_;
    flutter_since_ = since_;
    found_lately_ = 0;
  }
  if (++found_lately_ < kFoundOften) return false;
  run_ = flutter_run_;
  since_ = flutter_since_;
  return true;
}

void Departure::note_found(PlanPosition where, std::string hint) {
  run_.found = where;
  run_.hint = std::move(hint);
  divergence_ = run_;
  certain_ = true;
  doubted_.reset();
  goes_through_ = false;
}

void Departure::note_suspended(std::string hint, uint64_t tick, const std::deque<Sighting>& lately) {
  around_suspension_.assign(lately.begin(), lately.end());
  if (certain_ && run_.at.position == 0) {  // another order from there on
    std::erase_if(around_suspension_, [this](const Sighting& seen) { return seen.tick < since_; });
  }
  certain_ = false;
  divergence_ = run_;
  divergence_->hint = std::move(hint);
  diagnosed_ = false;
  diagnoses_left_ = 2;  // at once, which may be too early, and when more was seen
  diagnose_at_ = tick;
}

void Departure::note_after(const Sighting& sighting) {
  if (around_suspension_.size() < kSightings) around_suspension_.push_back(sighting);
}

bool Departure::for_good(uint64_t samples, uint64_t tick) const {
  const uint64_t looked_at = samples + samples / 4;  // some of them twice
  return goes_through_ || tick > since_ + looked_at;
}

std::vector<Sighting> Departure::evidence(const std::deque<Sighting>& lately) const {
  const auto first = std::find_if(lately.begin(), lately.end(),
                                  [this](const Sighting& seen) { return seen.tick >= since_; });
  return {first, lately.end()};
}

bool Departure::set_hint(std::string hint) {
  const bool first = !std::exchange(diagnosed_, true);
  if (diagnoses_left_ > 0) --diagnoses_left_;
  diagnose_at_ += kSeenWhole;
  if (!divergence_) return false;
  const std::string before = std::exchange(divergence_->hint, std::move(hint));
  return first || before != divergence_->hint;
}

}  // namespace clairfs
