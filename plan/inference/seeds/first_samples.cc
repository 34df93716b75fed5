#include "plan/inference/seeds/first_samples.h"

#include <algorithm>

namespace clairfs {

FirstSamples::FirstSamples(uint64_t n, size_t draws, FirstOutputs kernel)
    : kernel_(kernel), draws_(draws), targets_(kMostFirstOutputs * kSeedBlock) {
  for (uint64_t i = 0; i < kMostFirstOutputs - draws_ && i < n; ++i)
    remainders_.emplace_back(static_cast<uint32_t>(n - i));
}

void FirstSamples::begin(const uint32_t* seeds, size_t last_place) {
  kernel_(seeds, draws_ + last_place + 1, targets_.data());
  for (size_t i = 0; i <= last_place; ++i) {
    uint32_t* const targets = targets_.data() + row(i);
    for (size_t lane = 0; lane < kSeedBlock; ++lane)
      targets[lane] = static_cast<uint32_t>(i) + remainders_[i].of(targets[lane]);
  }
}

// The shuffle swaps place 0 with its target, then place 1, and so on. So this goes back over the swaps, from
// where the sample is taken to where it was at first: the place of its own number.
void FirstSamples::at(size_t place, std::array<uint32_t, kSeedBlock>& samples) const {
  std::copy_n(targets_.data() + row(place), kSeedBlock, samples.begin());
  for (size_t i = place; i-- > 0;) {
    const uint32_t* const targets = targets_.data() + row(i);
    for (size_t lane = 0; lane < kSeedBlock; ++lane)
      samples[lane] = samples[lane] == targets[lane] ? static_cast<uint32_t>(i) : samples[lane];
  }
}

}  // namespace clairfs
