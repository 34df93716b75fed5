#include "plan/random/pcg64.h"

#include <bit>

namespace clairfs {
namespace {

constexpr size_t kPool = 4;

// SeedSequence's hashmix with its running constant.
class HashMix {
 public:
  HashMix(uint32_t start, uint32_t factor) : constant_(start), factor_(factor) {}
  uint32_t operator()(uint32_t value) {
    value ^= constant_;
    constant_ *= factor_;
    value *= constant_;
    return value ^ (value >> 16);
  }

 private:
  uint32_t constant_;
  uint32_t factor_;
};

uint32_t mix(uint32_t x, uint32_t y) {
  const uint32_t result = 0xca01f9ddU * x - 0x4973f715U * y;
  return result ^ (result >> 16);
}

uint128_t join(uint64_t high, uint64_t low) {
  return (uint128_t{high} << 64) | low;
}

}  // namespace

SeedSequence::SeedSequence(std::span<const BigInteger> entropy) {
  std::vector<uint32_t> words;
  for (const BigInteger& value : entropy) {
    words.insert(words.end(), value.magnitude().begin(), value.magnitude().end());
  }
  HashMix hashmix(0x43b0d7e5U, 0x931e8875U);
  for (size_t i = 0; i < kPool; ++i) pool_[i] = hashmix(i < words.size() ? words[i] : 0);
  for (size_t source = 0; source < kPool; ++source) {
    for (size_t target = 0; target < kPool; ++target) {
      if (source != target) pool_[target] = mix(pool_[target], hashmix(pool_[source]));
    }
  }
  for (size_t source = kPool; source < words.size(); ++source) {
    for (uint32_t& target : pool_) target = mix(target, hashmix(words[source]));
  }
}

std::vector<uint32_t> SeedSequence::generate(size_t count) const {
  HashMix hashmix(0x8b51f9ddU, 0x58f38dedU);
  std::vector<uint32_t> words(count);
  for (size_t i = 0; i < count; ++i) words[i] = hashmix(pool_[i % kPool]);
  return words;
}

Pcg64::Pcg64(const SeedSequence& seed) {
  const std::vector<uint32_t> halves = seed.generate(8);
  const auto word = [&](size_t i) { return halves[2 * i] | (uint64_t{halves[2 * i + 1]} << 32); };
  increment_ = (join(word(2), word(3)) << 1) | 1;
  step();
  state_ += join(word(0), word(1));
  step();
}

void Pcg64::step() {
  constexpr uint64_t kHigh = 2549297995355413924ULL;  // PCG_DEFAULT_MULTIPLIER_128
  constexpr uint64_t kLow = 4865540595714422341ULL;
  state_ = state_ * join(kHigh, kLow) + increment_;
}

uint64_t Pcg64::next64() {
  step();
  const auto high = static_cast<uint64_t>(state_ >> 64);
  return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
}

uint32_t Pcg64::next32() {
  if (high_half_) {
    const uint32_t half = *high_half_;
    high_half_.reset();
    return half;
  }
  const uint64_t both = next64();
  high_half_ = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

}  // namespace clairfs
