#include "plan/inference/seeds/seed_kernels.h"

#include <array>

#include "plan/inference/seeds/seed_kernels_x86.h"
#include "plan/random/mt19937.h"

namespace clairfs {
namespace {

// So many fit the registers of any CPU that has vectors at all.
constexpr size_t kLanes = 16;

void step(uint32_t* words, uint32_t number) {
  for (size_t lane = 0; lane < kLanes; ++lane)
    words[lane] = Mt19937::kFactor * (words[lane] ^ (words[lane] >> 30)) + number;
}

void copy(const uint32_t* from, uint32_t* to) {
  for (size_t lane = 0; lane < kLanes; ++lane) to[lane] = from[lane];
}

// `out` holds the first `count` words until the outputs, which take their places, need them.
void some_first_outputs(const uint32_t* seeds, size_t count, uint32_t* out) {
  uint32_t words[kLanes];
  uint32_t behind[kLanes];  // word number `count`
  uint32_t number = 0;
  copy(seeds, words);
  for (; number < count; step(words, ++number)) copy(words, out + number * kSeedBlock);
  copy(words, behind);
  while (number + 1 < Mt19937::kShift) step(words, ++number);
  for (size_t i = 0; i < count; ++i, out += kSeedBlock) {
    step(words, ++number);
    const uint32_t* next = i + 1 < count ? out + kSeedBlock : behind;
    for (size_t lane = 0; lane < kLanes; ++lane)
      out[lane] = Mt19937::temper(Mt19937::twisted(out[lane], next[lane], words[lane]));
  }
}

void portable(const uint32_t* seeds, size_t count, uint32_t* out) {
  for (size_t lane = 0; lane < kSeedBlock; lane += kLanes)
    some_first_outputs(seeds + lane, count, out + lane);
}

}  // namespace

std::span<const SeedKernel> seed_kernels() {
  static constexpr SeedKernel kAll[] = {
      {"avx512", first_outputs_avx512}, {"avx2", first_outputs_avx2}, {"portable", portable}};
  static const size_t first = cpu_has_avx512() ? 0 : cpu_has_avx2() ? 1 : 2;
  return std::span(kAll).subspan(first);
}

}  // namespace clairfs
