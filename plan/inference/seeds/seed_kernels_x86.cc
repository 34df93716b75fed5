// The same steps for two kinds of registers, written twice: a function is compiled for one CPU, and so is
// each that is inlined into it. Registers are reached by constant indices, so that they stay registers.
#include "plan/inference/seeds/seed_kernels_x86.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "plan/inference/seeds/seed_kernels.h"
#include "plan/random/mt19937.h"

namespace clairfs {

#if defined(__x86_64__)

namespace {

constexpr size_t kRegisters = 8;  // see kSeedBlock; AVX2 has 16, the others are for constants and products
using EachRegister = std::make_index_sequence<kRegisters>;

using Avx2 [[gnu::vector_size(32)]] = uint32_t;
using Avx512 [[gnu::vector_size(64)]] = uint32_t;
constexpr size_t kAvx2Lanes = sizeof(Avx2) / sizeof(uint32_t);
constexpr size_t kAvx512Lanes = sizeof(Avx512) / sizeof(uint32_t);

// AVX2

template <size_t... r>
[[gnu::always_inline, gnu::target("avx2")]] inline void load(const uint32_t* from, Avx2* words,
                                                             std::index_sequence<r...>) {
  (std::memcpy(&words[r], from + r * kAvx2Lanes, sizeof(Avx2)), ...);
}

template <size_t... r>
[[gnu::always_inline, gnu::target("avx2")]] inline void store(const Avx2* words, uint32_t* to,
                                                              std::index_sequence<r...>) {
  (std::memcpy(to + r * kAvx2Lanes, &words[r], sizeof(Avx2)), ...);
}

template <size_t... r>
[[gnu::always_inline, gnu::target("avx2")]] inline void step(Avx2* words, uint32_t number,
                                                             std::index_sequence<r...>) {
  ((words[r] = (words[r] ^ (words[r] >> 30)) * Mt19937::kFactor + number), ...);
}

// Mt19937::twisted() and temper().
[[gnu::always_inline, gnu::target("avx2")]] inline void output(uint32_t* word, const uint32_t* next,
                                                               const Avx2& far) {
  Avx2 y, lower;
  std::memcpy(&y, word, sizeof y);
  std::memcpy(&lower, next, sizeof lower);
  y = (y & 0x80000000U) | (lower & 0x7fffffffU);
  y = far ^ (y >> 1) ^ ((0U - (y & 1U)) & 0x9908b0dfU);
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  y ^= y >> 18;
  std::memcpy(word, &y, sizeof y);
}

template <size_t... r>
[[gnu::always_inline, gnu::target("avx2")]] inline void outputs(uint32_t* words, const uint32_t* next,
                                                                const Avx2* far, std::index_sequence<r...>) {
  (output(words + r * kAvx2Lanes, next + r * kAvx2Lanes, far[r]), ...);
}

// See some_first_outputs() in seed_kernels.cc.
[[gnu::target("avx2")]] void half_block(const uint32_t* seeds, size_t count, uint32_t* out) {
  Avx2 words[kRegisters];
  uint32_t behind[kSeedBlock / 2];
  uint32_t number = 0;
  load(seeds, words, EachRegister());
  for (; number < count; step(words, ++number, EachRegister()))
    store(words, out + number * kSeedBlock, EachRegister());
  store(words, behind, EachRegister());
  while (number + 1 < Mt19937::kShift) step(words, ++number, EachRegister());
  for (size_t i = 0; i < count; ++i, out += kSeedBlock) {
    step(words, ++number, EachRegister());
    outputs(out, i + 1 < count ? out + kSeedBlock : behind, words, EachRegister());
  }
}

// AVX-512

template <size_t... r>
[[gnu::always_inline, gnu::target("avx512f")]] inline void load(const uint32_t* from, Avx512* words,
                                                                std::index_sequence<r...>) {
  (std::memcpy(&words[r], from + r * kAvx512Lanes, sizeof(Avx512)), ...);
}

template <size_t... r>
[[gnu::always_inline, gnu::target("avx512f")]] inline void store(const Avx512* words, uint32_t* to,
                                                                 std::index_sequence<r...>) {
  (std::memcpy(to + r * kAvx512Lanes, &words[r], sizeof(Avx512)), ...);
}

template <size_t... r>
[[gnu::always_inline, gnu::target("avx512f")]] inline void step(Avx512* words, uint32_t number,
                                                                std::index_sequence<r...>) {
  ((words[r] = (words[r] ^ (words[r] >> 30)) * Mt19937::kFactor + number), ...);
}

[[gnu::always_inline, gnu::target("avx512f")]] inline void output(uint32_t* word, const uint32_t* next,
                                                                  const Avx512& far) {
  Avx512 y, lower;
  std::memcpy(&y, word, sizeof y);
  std::memcpy(&lower, next, sizeof lower);
  y = (y & 0x80000000U) | (lower & 0x7fffffffU);
  y = far ^ (y >> 1) ^ ((0U - (y & 1U)) & 0x9908b0dfU);
  y ^= y >> 11;
  y ^= (y << 7) & 0x9d2c5680U;
  y ^= (y << 15) & 0xefc60000U;
  y ^= y >> 18;
  std::memcpy(word, &y, sizeof y);
}

template <size_t... r>
[[gnu::always_inline, gnu::target("avx512f")]] inline void outputs(uint32_t* words, const uint32_t* next,
                                                                   const Avx512* far,
                                                                   std::index_sequence<r...>) {
  (output(words + r * kAvx512Lanes, next + r * kAvx512Lanes, far[r]), ...);
}

}  // namespace

bool cpu_has_avx2() {
  return __builtin_cpu_supports("avx2");
}

bool cpu_has_avx512() {
  return __builtin_cpu_supports("avx512f");
}

void first_outputs_avx2(const uint32_t* seeds, size_t count, uint32_t* out) {
  half_block(seeds, count, out);
  half_block(seeds + kSeedBlock / 2, count, out + kSeedBlock / 2);
}

[[gnu::target("avx512f")]] void first_outputs_avx512(const uint32_t* seeds, size_t count, uint32_t* out) {
  Avx512 words[kRegisters];
  uint32_t behind[kSeedBlock];
  uint32_t number = 0;
  load(seeds, words, EachRegister());
  for (; number < count; step(words, ++number, EachRegister()))
    store(words, out + number * kSeedBlock, EachRegister());
  store(words, behind, EachRegister());
  while (number + 1 < Mt19937::kShift) step(words, ++number, EachRegister());
  for (size_t i = 0; i < count; ++i, out += kSeedBlock) {
    step(words, ++number, EachRegister());
    outputs(out, i + 1 < count ? out + kSeedBlock : behind, words, EachRegister());
  }
}

#else

bool cpu_has_avx2() {
  return false;
}

bool cpu_has_avx512() {
  return false;
}

void first_outputs_avx2(const uint32_t*, size_t, uint32_t*) {
  std::abort();
}

void first_outputs_avx512(const uint32_t*, size_t, uint32_t*) {
  std::abort();
}

#endif

}  // namespace clairfs
