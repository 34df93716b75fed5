// Generator.shuffle / permutation and RandomState.shuffle / permutation: one loop, any bit generator.
// Source: numpy/random/_generator.pyx, mtrand.pyx, random_interval() in distributions.c (1.17 to 2.4).
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <utility>

namespace clairfs {

/// Shuffles in place, from the back, with masked rejection. `Bits` has next32() (Pcg64, Mt19937).
/// REQUIRES: order.size() < 2^32, so that NumPy too draws 32-bit words.
template <class Bits>
void numpy_shuffle(Bits& bits, std::span<uint32_t> order) {
  for (size_t i = order.size(); i-- > 1;) {
    const uint32_t limit = static_cast<uint32_t>(i);
    const uint32_t mask = ~uint32_t{0} >> std::countl_zero(limit);
    uint32_t j = bits.next32() & mask;
    while (j > limit) j = bits.next32() & mask;
    std::swap(order[i], order[j]);
  }
}

}  // namespace clairfs
