#include "plan/sequence/sequence_positions.h"

#include <algorithm>
#include <numeric>

namespace clairfs {
namespace {

// Positions a bucket holds on average: few enough for a short search, enough that starts_ adds little.
constexpr uint32_t kBucket = 4;

}  // namespace

SequencePositions::SequencePositions(std::shared_ptr<const EpochSequence> sequence)
    : sequence_(std::move(sequence)), positions_(sequence_->length()) {
  const std::span<const uint32_t> samples = sequence_->samples();
  const uint32_t largest = samples.empty() ? 0 : *std::max_element(samples.begin(), samples.end());
  while (shift_ < 31 && (largest >> shift_) > samples.size() / kBucket) ++shift_;

  starts_.resize((largest >> shift_) + 2);
  for (const uint32_t sample : samples) ++starts_[(sample >> shift_) + 1];
  std::partial_sum(starts_.begin(), starts_.end(), starts_.begin());
  for (uint32_t position = 0; position < samples.size(); ++position) {
    positions_[starts_[samples[position] >> shift_]++] = position;
  }
  std::copy_backward(starts_.begin(), starts_.end() - 1, starts_.end());
  starts_.front() = 0;
  if (shift_ == 0) return;
  for (size_t bucket = 0; bucket + 1 < starts_.size(); ++bucket) {
    std::sort(
        positions_.begin() + starts_[bucket], positions_.begin() + starts_[bucket + 1],
        [&](uint32_t a, uint32_t b) { return samples[a] != samples[b] ? samples[a] < samples[b] : a < b; });
  }
}

std::span<const uint32_t> SequencePositions::of(uint32_t sample) const {
  const uint32_t bucket = sample >> shift_;
  if (bucket + 1 >= starts_.size()) return {};
  const std::span<const uint32_t> samples = sequence_->samples();
  const uint32_t* const end = positions_.data() + starts_[bucket + 1];
  const uint32_t* const first =
      std::lower_bound(positions_.data() + starts_[bucket], end, sample,
                       [&](uint32_t position, uint32_t wanted) { return samples[position] < wanted; });
  const uint32_t* const past = std::upper_bound(
      first, end, sample, [&](uint32_t wanted, uint32_t position) { return wanted < samples[position]; });
  return {first, past};
}

uint64_t SequencePositions::memory_bytes() const {
  return sizeof(*this) + (starts_.capacity() + positions_.capacity()) * sizeof(uint32_t);
}

}  // namespace clairfs
