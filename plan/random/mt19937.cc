#include "plan/random/mt19937.h"

#include <algorithm>

namespace clairfs {
namespace {

constexpr size_t kShift = 397;  // "m" of the recurrence

uint32_t mix(uint32_t upper, uint32_t lower, uint32_t far) {
  const uint32_t y = (upper & 0x80000000U) | (lower & 0x7fffffffU);
  return far ^ (y >> 1) ^ ((0U - (y & 1U)) & 0x9908b0dfU);
}

}  // namespace

Mt19937::Mt19937(uint32_t seed) {
  words_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    words_[i] = 1812433253U * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
  }
}

Mt19937 Mt19937::from_key(std::span<const uint32_t> key) {
  Mt19937 engine(19650218U);
  auto& words = engine.words_;
  size_t i = 1;
  const auto advance = [&] {
    if (++i < kWords) return;
    words[0] = words[kWords - 1];
    i = 1;
  };
  const auto spread = [&](uint32_t factor) {
    return words[i] ^ ((words[i - 1] ^ (words[i - 1] >> 30)) * factor);
  };
  for (size_t k = 0, j = 0; k < std::max(kWords, key.size()); ++k, j = (j + 1) % key.size()) {
    words[i] = spread(1664525U) + key[j] + static_cast<uint32_t>(j);
    advance();
  }
  for (size_t k = 1; k < kWords; ++k) {
    words[i] = spread(1566083941U) - static_cast<uint32_t>(i);
    advance();
  }
  words[0] = 0x80000000U;
  return engine;
}

Mt19937 Mt19937::from_state(const std::array<uint32_t, kWords>& words, size_t position) {
  Mt19937 engine(0);
  engine.words_ = words;
  engine.position_ = std::min(position, kWords);
  return engine;
}

void Mt19937::discard(uint64_t draws) {
  while (draws > kWords - position_) {
    draws -= kWords - position_;
    twist();
  }
  position_ += draws;
}

void Mt19937::twist() {
  size_t i = 0;
  for (; i < kWords - kShift; ++i) words_[i] = mix(words_[i], words_[i + 1], words_[i + kShift]);
  for (; i < kWords - 1; ++i) words_[i] = mix(words_[i], words_[i + 1], words_[i + kShift - kWords]);
  words_[i] = mix(words_[i], words_[0], words_[kShift - 1]);
  position_ = 0;
}

}  // namespace clairfs
