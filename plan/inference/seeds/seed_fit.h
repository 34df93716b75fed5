// One seed against the evidence: where the first opens lie in its order.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "plan/inference/seeds/seed_search.h"
#include "plan/random/mt19937.h"

namespace clairfs {

/// When a sample was seen first. Immutable, thread-safe. Most samples were not: that is told by one look into
/// 8 KB.
class Arrivals {
 public:
  static constexpr uint32_t kNever = UINT32_MAX;

  /// REQUIRES: each sample once.
  explicit Arrivals(std::span<const uint32_t> first_seen);
  /// Its place among the samples seen; kNever if it was not.
  uint32_t of(uint32_t sample) const {
    const uint32_t low = sample & 0xffffU;
    return (low_halves_[low >> 6] >> (low & 63U) & 1U) == 0 ? kNever : look_up(sample);
  }
  uint32_t count() const { return static_cast<uint32_t>(by_sample_.size()); }

 private:
  uint32_t look_up(uint32_t sample) const;

  std::array<uint64_t, 1024> low_halves_{};  // bit i: some sample seen has these low 16 bits
  std::vector<std::pair<uint32_t, uint32_t>> by_sample_;
};

/// The beginning of torch.randperm(n), without memory for the rest. Not thread-safe.
class PartialShuffle {
 public:
  /// REQUIRES: 0 < length <= n < 2^32.
  PartialShuffle(uint64_t n, uint64_t length);
  /// The first `length` samples, until the next call.
  std::span<const uint32_t> draw(Mt19937& generator);

 private:
  struct Place {
    uint32_t number = 0;
    uint32_t sample = 0;
    uint32_t round = 0;  // of which it is; of others it is free
  };
  Place& far_place(uint32_t number);

  const uint32_t n_;
  const uint64_t length_;
  std::vector<uint32_t> near_;  // places that lie at the beginning
  std::vector<Place> far_;      // a hash table of those that were drawn elsewhere; a power of two
  const int shift_;             // leaves as many high bits of a hash as number a place in it
  uint32_t round_ = 0;
};

/// The places of torch's order in which the evidence may lie: those of some ranks. REQUIRES:
/// check_seed_evidence().
class OwnPlaces {
 public:
  explicit OwnPlaces(const SeedEvidence& evidence);
  uint64_t count() const { return count_; }
  /// The i-th of them.
  uint64_t of(uint64_t i) const { return first_ + i / ranks_ * world_ + i % ranks_; }
  /// The last one and all before it.
  uint64_t length() const { return of(count_ - 1) + 1; }

 private:
  uint64_t first_, ranks_, world_, count_;
};

/// How well seeds fit, one by one. Not thread-safe; the evidence outlives it.
class SeedFit {
 public:
  SeedFit(const SeedEvidence& evidence, const Arrivals& arrivals);
  /// How many of the opens lie in their places in this seed's order.
  uint32_t explained(uint32_t seed);

 private:
  const Arrivals& arrivals_;
  const OwnPlaces places_;
  const uint32_t draws_;
  PartialShuffle shuffle_;
};

}  // namespace clairfs
