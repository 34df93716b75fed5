// The Mersenne Twister behind torch's CPU generator, NumPy's legacy RandomState and Python's random module.
//
// std::mt19937 gives the same words; this one also starts from an array and from a saved state, skips
// without drawing, and is half as large.
// Source: Matsumoto and Nishimura, ACM TOMACS 8 (1998); initialisers of mt19937ar.c (2002).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace clairfs {

/// Copyable (2.5 KB), not thread-safe.
class Mt19937 {
 public:
  static constexpr size_t kWords = 624;
  static constexpr size_t kShift = 397;             ///< "m" of the recurrence
  static constexpr uint32_t kFactor = 1812433253U;  ///< of the initialiser, by Knuth

  /// init_genrand: torch (low 32 bits of the seed), numpy RandomState(int).
  explicit Mt19937(uint32_t seed);
  /// init_by_array: Python's random, numpy RandomState(array). REQUIRES: key not empty.
  static Mt19937 from_key(std::span<const uint32_t> key);
  /// Untempered words and the number of them that were handed out already (624: the next draw twists).
  static Mt19937 from_state(const std::array<uint32_t, kWords>& words, size_t position);

  uint32_t next32() {
    if (position_ == kWords) twist();
    return temper(words_[position_++]);
  }
  /// The first draw is the high word: torch's random64(), numpy's mt19937_next64().
  uint64_t next64() {
    const uint64_t high = next32();
    return (high << 32) | next32();
  }
  /// As `draws` calls of next32(), but only the twists are done.
  void discard(uint64_t draws);
  /// Draws until next32() gives `output`, `most` times at most. How many came before it; nothing if it did
  /// not come.
  std::optional<uint64_t> draw_until(uint32_t output, uint64_t most);

  /// Word i of the next block, of words i, i + 1 and i + kShift of this one (modulo kWords).
  static uint32_t twisted(uint32_t word, uint32_t next, uint32_t far) {
    const uint32_t y = (word & 0x80000000U) | (next & 0x7fffffffU);
    return far ^ (y >> 1) ^ ((0U - (y & 1U)) & 0x9908b0dfU);
  }
  /// The output for a word of the state.
  static uint32_t temper(uint32_t y) {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
  }

 private:
  void twist();

  std::array<uint32_t, kWords> words_;
  size_t position_ = kWords;
};

}  // namespace clairfs
