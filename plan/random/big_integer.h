// Integers of any size, as Python and NumPy take them for seeds.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/base/result.h"

namespace clairfs {

/// Sign and magnitude. A value type; concurrent reads are safe.
class BigInteger {
 public:
  explicit BigInteger(uint64_t value = 0);

  /// Decimal digits with an optional sign, at most 1000 of them (a seed that long is a mistake; parsing is
  /// quadratic). Errors: EINVAL.
  static Result<BigInteger> parse(std::string_view text);

  bool negative() const { return negative_; }
  /// |value| as 32-bit words, least significant first, without leading zeros; zero is one zero word.
  const std::vector<uint32_t>& magnitude() const { return words_; }
  /// value + addend, as "seed + epoch" in Python.
  BigInteger plus(uint64_t addend) const;

  /// Nothing when the value is outside of [0, 2^64).
  std::optional<uint64_t> as_uint64() const;
  /// Nothing when the value is outside of [-2^63, 2^63).
  std::optional<int64_t> as_int64() const;

 private:
  std::vector<uint32_t> words_;
  bool negative_ = false;
};

}  // namespace clairfs
