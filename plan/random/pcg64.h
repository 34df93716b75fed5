// numpy.random.default_rng: SeedSequence and the PCG64 bit generator.
// Source: numpy/random/bit_generator.pyx, _pcg64.pyx, pcg64.h (unchanged 1.17 to 2.4); O'Neill,
// HMC-CS-2014-0905.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "plan/random/big_integer.h"

namespace clairfs {

__extension__ typedef unsigned __int128 uint128_t;

/// numpy.random.SeedSequence without spawning.
class SeedSequence {
 public:
  /// One integer, or the elements of a list. REQUIRES: none is negative.
  explicit SeedSequence(std::span<const BigInteger> entropy);

  /// generate_state(count, uint32)
  std::vector<uint32_t> generate(size_t count) const;

 private:
  std::array<uint32_t, 4> pool_;
};

/// PCG XSL-RR 128/64. Copyable, not thread-safe.
class Pcg64 {
 public:
  explicit Pcg64(const SeedSequence& seed);

  uint64_t next64();
  /// The low half of a 64-bit output first; the high half waits for the next call, across next64() calls.
  uint32_t next32();

 private:
  void step();

  uint128_t state_ = 0;
  uint128_t increment_;
  std::optional<uint32_t> high_half_;
};

}  // namespace clairfs
