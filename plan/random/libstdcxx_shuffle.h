// std::shuffle as GCC's libstdc++ does it: what NVIDIA DALI and NoPFS/HDMLP were compiled with.
//
// The standard fixes the engines but not std::shuffle, and libstdc++ changed its uniform_int_distribution in
// GCC 11: the order depends on the compiler that built the framework, not on the one that builds this file.
// Source: bits/stl_algo.h, bits/uniform_int_dist.h of GCC 10, 12, 14 and 16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace clairfs {

enum class LibstdcxxShuffle {
  before_gcc11,  ///< division with rejection only
  since_gcc11,   ///< multiply and shift for engines of exactly 32 or 64 bits (Lemire, TOMACS 29, 2019)
};

/// The family of GCC's major version `gcc`.
constexpr LibstdcxxShuffle libstdcxx_shuffle_of(uint64_t gcc) {
  constexpr uint64_t kChanged = 11;
  return gcc < kChanged ? LibstdcxxShuffle::before_gcc11 : LibstdcxxShuffle::since_gcc11;
}

namespace detail {

/// Lemire's method on the words of an engine; `Wide` holds a product of two words.
template <class Word, class Wide, class Engine>
uint64_t multiply_shift(Engine& engine, Word range) {
  constexpr int kBits = std::numeric_limits<Word>::digits;
  Wide product = Wide{static_cast<Word>(engine())} * range;
  if (static_cast<Word>(product) < range) {
    const Word threshold = static_cast<Word>(Word{0} - range) % range;
    while (static_cast<Word>(product) < threshold) product = Wide{static_cast<Word>(engine())} * range;
  }
  return static_cast<uint64_t>(product >> kBits);
}

/// uniform_int_distribution<uint64_t>{0, limit}(engine). REQUIRES: limit <= Engine::max() - Engine::min().
template <class Engine>
uint64_t libstdcxx_uniform(Engine& engine, uint64_t limit, LibstdcxxShuffle family) {
  __extension__ typedef unsigned __int128 Wide64;
  constexpr uint64_t kRange = Engine::max() - Engine::min();
  if (limit == kRange) return engine() - Engine::min();
  const uint64_t size = limit + 1;
  if (family == LibstdcxxShuffle::since_gcc11) {
    if constexpr (kRange == std::numeric_limits<uint32_t>::max()) {
      return multiply_shift<uint32_t, uint64_t>(engine, static_cast<uint32_t>(size));
    } else if constexpr (kRange == std::numeric_limits<uint64_t>::max()) {
      return multiply_shift<uint64_t, Wide64>(engine, size);
    }
  }
  const uint64_t scaling = kRange / size;
  const uint64_t past = size * scaling;
  uint64_t value = engine() - Engine::min();
  while (value >= past) value = engine() - Engine::min();
  return value / scaling;
}

}  // namespace detail

/// std::shuffle(order.begin(), order.end(), engine).
/// REQUIRES: order.size() - 1 <= Engine::max() - Engine::min() (libstdc++ would combine several draws).
template <class Engine>
void libstdcxx_shuffle(std::span<uint32_t> order, Engine& engine, LibstdcxxShuffle family) {
  const size_t n = order.size();
  if (n == 0) return;
  const auto draw = [&](uint64_t limit) { return detail::libstdcxx_uniform(engine, limit, family); };
  if ((Engine::max() - Engine::min()) / n < n) {
    for (size_t i = 1; i < n; ++i) std::swap(order[i], order[draw(i)]);
    return;
  }
  size_t i = 1;  // two positions from one draw
  if (n % 2 == 0) std::swap(order[i++], order[draw(1)]);
  for (; i < n; i += 2) {
    const uint64_t pair = draw((i + 1) * (i + 2) - 1);
    std::swap(order[i], order[pair / (i + 2)]);
    std::swap(order[i + 1], order[pair % (i + 2)]);
  }
}

}  // namespace clairfs
