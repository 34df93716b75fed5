// Generator.integers(low, high) and Generator.random() of NumPy, one value at a time.
// Source: numpy/random/src/distributions/distributions.c, buffered_bounded_lemire_uint32() (1.17 to 2.4).
#pragma once

#include <cstdint>

#include "plan/random/pcg64.h"

namespace clairfs {

/// integers(0, count). REQUIRES: 0 < count < 2^32, so that NumPy too draws 32-bit words.
inline uint32_t numpy_below(Pcg64& bits, uint32_t count) {
  if (count == 1) return 0;  // draws nothing
  uint64_t product = uint64_t{bits.next32()} * count;
  if (static_cast<uint32_t>(product) < count) {
    const uint32_t threshold = -count % count;  // 2^32 mod count
    while (static_cast<uint32_t>(product) < threshold) product = uint64_t{bits.next32()} * count;
  }
  return static_cast<uint32_t>(product >> 32);
}

/// random(): a double in [0, 1).
inline double numpy_double(Pcg64& bits) {
  return static_cast<double>(bits.next64() >> 11) * 0x1p-53;
}

}  // namespace clairfs
