#include "plan/simulator/policies/holdings.h"

#include <algorithm>
#include <cmath>

namespace clairfs {

float not_after(double time) {
  const auto rounded = static_cast<float>(time);
  return rounded > time ? std::nextafter(rounded, 0.0F) : rounded;
}

Holdings HoldingsBuilder::build() {
  Holdings holdings;
  holdings.starts_.assign(samples_ + 1, 0);
  for (const Added& added : added_) ++holdings.starts_[added.sample + 1];
  for (uint64_t sample = 0; sample < samples_; ++sample)
    holdings.starts_[sample + 1] += holdings.starts_[sample];
  holdings.copies_.resize(added_.size());
  std::vector<uint32_t> next(holdings.starts_.begin(), holdings.starts_.end() - 1);
  for (const Added& added : added_) holdings.copies_[next[added.sample]++] = added.copy;
  added_ = {};
  for (uint32_t sample = 0; sample < samples_; ++sample) {
    const std::span<Holding> copies = holdings.of(sample);
    std::stable_sort(copies.begin(), copies.end(),
                     [](const Holding& a, const Holding& b) { return a.storage < b.storage; });
  }
  return holdings;
}

}  // namespace clairfs
