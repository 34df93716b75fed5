// The first samples in torch's orders of many seeds at once, out of their generators' first outputs.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "plan/inference/seeds/seed_kernels.h"

namespace clairfs {

/// x % divisor by two multiplications: floor(x * floor((2^64 - 1) / d) / 2^64) is the quotient or one less.
class Remainder {
 public:
  /// REQUIRES: divisor > 0.
  explicit Remainder(uint32_t divisor)
      : divisor_(divisor),
        high_((~uint64_t{0} / divisor) >> 32),
        low_((~uint64_t{0} / divisor) & UINT32_MAX) {}

  uint32_t of(uint32_t x) const {
    const uint64_t quotient = (x * high_ + (x * low_ >> 32)) >> 32;
    const uint32_t rest = x - static_cast<uint32_t>(quotient) * divisor_;
    return rest >= divisor_ ? rest - divisor_ : rest;
  }

 private:
  uint32_t divisor_;
  uint64_t high_, low_;
};

/// Not thread-safe. Memory: 120 KB.
class FirstSamples {
 public:
  /// Of torch.randperm(n), after `draws` outputs. REQUIRES: 0 < n < 2^32, draws < kMostFirstOutputs.
  FirstSamples(uint64_t n, size_t draws, FirstOutputs kernel);

  /// It can tell of the places before this one.
  size_t end() const { return remainders_.size(); }
  /// From now on of these kSeedBlock seeds. REQUIRES: last_place < end().
  void begin(const uint32_t* seeds, size_t last_place);
  /// The sample in a place of each seed's order. REQUIRES: place <= last_place.
  void at(size_t place, std::array<uint32_t, kSeedBlock>& samples) const;

 private:
  size_t row(size_t place) const { return (draws_ + place) * kSeedBlock; }

  const FirstOutputs kernel_;
  const size_t draws_;
  std::vector<uint32_t> targets_;      // the place that each place is swapped with, a row of seeds each
  std::vector<Remainder> remainders_;  // [i]: by n - i
};

}  // namespace clairfs
