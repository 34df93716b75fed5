// Philox4x32-10, the generator of tf.data.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11; tensorflow,
// tsl/lib/random/philox_random.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace clairfs {

/// Copyable, not thread-safe.
class Philox {
 public:
  /// PhiloxRandom(seed, seed2): the key, and the upper half of the counter.
  Philox(uint64_t seed, uint64_t seed2);

  uint32_t next32() {
    if (used_ == group_.size()) refill();
    return group_[used_++];
  }
  /// Continues with the draw of that number. Draws are numbered from 0.
  void seek(uint64_t draw);

 private:
  void refill();

  std::array<uint32_t, 2> key_;
  uint64_t seed2_;
  uint64_t counter_ = 0;  ///< of the next group; no one draws 2^66 times
  std::array<uint32_t, 4> group_{};
  size_t used_ = 4;  ///< words of group_ that were handed out
};

}  // namespace clairfs
