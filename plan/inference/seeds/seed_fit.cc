#include "plan/inference/seeds/seed_fit.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace clairfs {
namespace {

// Places at the beginning cost 4 bytes each and no hashing. So where the order ends soon after them all are
// near.
uint64_t near_places(uint64_t n, uint64_t length) {
  return n <= 8 * length ? n : length;
}

// Half of the hash table stays free.
uint64_t far_places(uint64_t n, uint64_t length) {
  return near_places(n, length) == n ? 2 : std::bit_ceil(2 * length);
}

}  // namespace

Arrivals::Arrivals(std::span<const uint32_t> first_seen) {
  by_sample_.reserve(first_seen.size());
  for (const uint32_t sample : first_seen) {
    const uint32_t low = sample & 0xffffU;
    low_halves_[low >> 6] |= uint64_t{1} << (low & 63U);
    by_sample_.emplace_back(sample, static_cast<uint32_t>(by_sample_.size()));
  }
  std::sort(by_sample_.begin(), by_sample_.end());
}

uint32_t Arrivals::look_up(uint32_t sample) const {
  const auto found = std::lower_bound(by_sample_.begin(), by_sample_.end(), std::pair{sample, uint32_t{0}});
  return found != by_sample_.end() && found->first == sample ? found->second : kNever;
}

PartialShuffle::PartialShuffle(uint64_t n, uint64_t length)
    : n_(static_cast<uint32_t>(n)),
      length_(length),
      near_(near_places(n, length)),
      far_(far_places(n, length)),
      shift_(32 - std::bit_width(far_.size() - 1)) {}

PartialShuffle::Place& PartialShuffle::far_place(uint32_t number) {
  const size_t last = far_.size() - 1;
  constexpr uint32_t kGolden = 2654435769U;  // 2^32 over the golden ratio: Knuth, volume 3, 6.4
  size_t at = (number * kGolden) >> shift_;
  while (far_[at].round == round_ && far_[at].number != number) at = (at + 1) & last;
  Place& place = far_[at];
  if (place.round != round_) place = {number, number, round_};
  return place;
}

std::span<const uint32_t> PartialShuffle::draw(Mt19937& generator) {
  std::iota(near_.begin(), near_.end(), 0);
  if (++round_ == 0) {  // after 2^32 draws those of the first one would seem to be of this one
    std::fill(far_.begin(), far_.end(), Place());
    round_ = 1;
  }
  for (uint32_t i = 0; i < length_; ++i) {
    const uint32_t other = i + (i + 1 < n_ ? generator.next32() % (n_ - i) : 0);
    std::swap(near_[i], other < near_.size() ? near_[other] : far_place(other).sample);
  }
  return std::span(near_).first(length_);
}

OwnPlaces::OwnPlaces(const SeedEvidence& evidence)
    : first_(evidence.first_rank), ranks_(evidence.ranks), world_(evidence.world) {
  // Ranks whose share ends with n have one less than others: those behind it are left out.
  const uint64_t rounds = evidence.n > first_ ? (evidence.n - first_ + world_ - 1) / world_ : 0;
  count_ = std::min(evidence.reach, rounds) * ranks_;
  while (count_ > 0 && of(count_ - 1) >= evidence.n) --count_;
}

SeedFit::SeedFit(const SeedEvidence& evidence, const Arrivals& arrivals)
    : arrivals_(arrivals),
      places_(evidence),
      draws_(evidence.draws),
      shuffle_(evidence.n, places_.length()) {}

uint32_t SeedFit::explained(uint32_t seed) {
  Mt19937 generator(seed);
  generator.discard(draws_);
  const std::span<const uint32_t> order = shuffle_.draw(generator);
  uint32_t explained = 0;
  for (uint64_t i = 0; i < places_.count(); ++i)
    explained += arrivals_.of(order[places_.of(i)]) != Arrivals::kNever ? 1 : 0;
  return explained;
}

}  // namespace clairfs
