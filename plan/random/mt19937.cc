#include "plan/random/mt19937.h"

#include <algorithm>

namespace clairfs {
namespace {

// The word that temper() makes this output of: each step is undone with what is known of the bits so far.
uint32_t untemper(uint32_t output) {
  uint32_t y = output ^ (output >> 18);
  y ^= (y << 15) & 0xefc60000U;
  uint32_t word = y;
  for (int known = 7; known < 32; known += 7) word = y ^ ((word << 7) & 0x9d2c5680U);
  const uint32_t shifted = word;
  for (int known = 11; known < 32; known += 11) word = shifted ^ (word >> 11);
  return word;
}

}  // namespace

Mt19937::Mt19937(uint32_t seed) {
  words_[0] = seed;
  for (uint32_t i = 1; i < kWords; ++i) {
    words_[i] = kFactor * (words_[i - 1] ^ (words_[i - 1] >> 30)) + i;
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

std::optional<uint64_t> Mt19937::draw_until(uint32_t output, uint64_t most) {
  const uint32_t wanted = untemper(output);
  uint64_t before = 0;
  while (before < most) {
    if (position_ == kWords) twist();
    const auto from = words_.begin() + static_cast<ptrdiff_t>(position_);
    const auto end = from + static_cast<ptrdiff_t>(std::min<uint64_t>(kWords - position_, most - before));
    const auto found = std::find(from, end, wanted);
    const auto passed = static_cast<size_t>(found - from);
    before += passed;
    position_ += passed;
    if (found == end) continue;
    ++position_;
    return before;
  }
  return std::nullopt;
}

void Mt19937::twist() {
  size_t i = 0;
  for (; i < kWords - kShift; ++i) words_[i] = twisted(words_[i], words_[i + 1], words_[i + kShift]);
  for (; i < kWords - 1; ++i) words_[i] = twisted(words_[i], words_[i + 1], words_[i + kShift - kWords]);
  words_[i] = twisted(words_[i], words_[0], words_[kShift - 1]);
  position_ = 0;
}

}  // namespace clairfs
