// Numbers as packed formats write them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace clairfs {

/// The number in the `width` bytes from `at` on, the lowest first. REQUIRES: they are there, and at most
/// eight.
inline uint64_t little_endian_at(std::string_view bytes, size_t at, size_t width) {
  uint64_t number = 0;
  for (size_t i = 0; i < width; ++i) number |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
  return number;
}

}  // namespace clairfs
