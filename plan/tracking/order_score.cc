#include "plan/tracking/order_score.h"

#include <algorithm>
#include <cmath>

namespace clairfs {
namespace {

// Score at which a plan is suspended. With sentinels alone, hundreds of samples pass between two observations
// in order (the workers reach theirs together), and strays of 5 % among them must not add up.
constexpr double kSparseLimit = 40;
// With every open seen, 5 % of strays are outweighed at once: the score passes 12 once in 10^14 opens.
constexpr double kOpenLimit = 12;
// What an observation in order takes away if every open is seen; strays of 5 %, and a folder that somebody
// reads meanwhile, must not add up, and a reader that has half of its samples in common with the plan (half
// the world size) must.
constexpr double kCredit = 0.5;

// Strays among the accesses of who follows the plan.
constexpr double kStrays = 0.05;

// Positions over which visibility is measured, and observations after which the kind of them tells whether
// every open is seen.
constexpr double kVisibilitySpan = 256;
constexpr double kEveryOpen = 16;
// Share of the accesses in order that begin with an open where every open is seen: another program on the
// same files does not tell of its opens.
constexpr double kOpenShare = 0.9;

// One in ten observations forgives one position that was passed over.
constexpr double kForgiven = 0.1;
// Positions to be passed over before they are looked through again: that takes a nanosecond for each.
constexpr double kLookAgain = 8;

// What an observation in order weighs against one that is not; never so little that kStrays add up.
double credit_at(double chance) {
  constexpr double kLeast = kStrays / (1 - kStrays);
  const double most = 1 - 2 * kStrays;  // beyond, both weights come near to nothing
  const double c = std::clamp(chance, kStrays, most);
  return std::clamp(std::log((1 - kStrays) / c) / std::log((1 - c) / kStrays), kLeast, kCredit);
}

}  // namespace

void OrderScore::in_order(Access kind, double chance) {
  const double open = kind == Access::open ? 1 : 0;
  ++observations_;
  opens_ += open;
  recent_seen_ += 1;
  recent_opens_ += open;
  const double credit =
      every_open() ? credit_at(chance) : std::min(kCredit / observed_fraction(), kSparseLimit);
  score_ = std::max(score_ - credit, 0.0);
}

// A correct reader comes back to what it passed over.
void OrderScore::passed(int64_t positions) {
  recent_passed_ += static_cast<double>(positions);
  if (recent_passed_ > kVisibilitySpan) {
    const double keep = kVisibilitySpan / 2 / recent_passed_;
    recent_passed_ *= keep;
    recent_seen_ *= keep;
    recent_opens_ *= keep;
  }
  holes_ = every_open() ? std::max(holes_ + static_cast<double>(positions) - 1 - kForgiven, 0.0) : 0;
}

void OrderScore::out_of_order(Access kind) {
  ++observations_;
  if (kind == Access::open) opens_ += 1;
  score_ += 1;
}

bool OrderScore::every_open() const {
  if (recent_seen_ >= kEveryOpen) return recent_opens_ >= kOpenShare * recent_seen_;
  const auto all = static_cast<double>(observations_);
  return all >= kEveryOpen && opens_ >= kOpenShare * all;
}

double OrderScore::observed_fraction() const {
  return std::min((recent_seen_ + 1) / (recent_passed_ + 1), 1.0);
}

bool OrderScore::fails(bool pushed, int64_t reorder_window) const {
  // With nothing pushed reads are as good as opens.
  const bool every_read = !pushed && recent_seen_ >= kEveryOpen &&
                          2 * recent_seen_ + static_cast<double>(reorder_window) >= recent_passed_;
  return score_ >= (every_open() || every_read ? kOpenLimit : kSparseLimit);
}

std::optional<uint64_t> OrderScore::left_out(int64_t reorder_window) const {
  if (holes_ <= static_cast<double>(reorder_window + kLeftOut)) return std::nullopt;
  return static_cast<uint64_t>(holes_);
}

void OrderScore::doubt_left_out() {
  holes_ = std::max(holes_ - kLookAgain, 0.0);
}

}  // namespace clairfs
