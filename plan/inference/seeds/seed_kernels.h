// The first outputs of MT19937 for many seeds at once.
//
// An output needs three words of the state: number i, i + 1 and i + 397. So the first outputs of a seed cost
// about 400 steps of its initialiser instead of 624 and a twist of all words; and the steps of different
// seeds have nothing to do with each other, so that each lane of a vector register takes another seed.
// Source: Matsumoto and Nishimura, ACM TOMACS 8 (1998); the initialiser of mt19937ar.c (2002).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace clairfs {

/// Seeds in a call: eight registers of AVX-512, each with lanes for sixteen. With eight of them under way no
/// multiplication waits for the one before.
inline constexpr size_t kSeedBlock = 128;

/// Outputs that the words of the initialiser suffice for: 624 - 397.
inline constexpr size_t kMostFirstOutputs = 227;

/// Writes output i of MT19937(seeds[lane]) to out[i * kSeedBlock + lane], for i < count and each of the
/// kSeedBlock lanes. REQUIRES: 0 < count <= kMostFirstOutputs. Thread-safe.
using FirstOutputs = void (*)(const uint32_t* seeds, size_t count, uint32_t* out);

struct SeedKernel {
  const char* name;  ///< "portable", "avx2", "avx512"
  FirstOutputs first_outputs;
};

/// Those that this CPU runs, the fastest first; the last one is plain C++. All write the same.
std::span<const SeedKernel> seed_kernels();

}  // namespace clairfs
