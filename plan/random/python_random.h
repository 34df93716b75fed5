// Python's random.Random: seeding, shuffle and sample.
// Source: Lib/random.py, Modules/_randommodule.c (3.9 to 3.14 agree).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plan/random/big_integer.h"
#include "plan/random/mt19937.h"

namespace clairfs {

/// Copyable, not thread-safe.
class PythonRandom {
 public:
  /// random.seed(int): the sign is ignored.
  explicit PythonRandom(const BigInteger& seed);
  /// random.seed(str), version 2. `seed` is UTF-8.
  static PythonRandom from_string(std::string_view seed);

  /// getrandbits(bits). REQUIRES: 1 <= bits <= 32.
  uint32_t bits(uint32_t bits) { return engine_.next32() >> (32 - bits); }
  /// _randbelow(n). REQUIRES: n > 0.
  uint32_t below(uint32_t n);
  /// random.shuffle(order). REQUIRES: order.size() < 2^32.
  void shuffle(std::span<uint32_t> order);
  /// random.sample(range(n), k). REQUIRES: k <= n.
  std::vector<uint32_t> sample(uint32_t n, uint32_t k);

 private:
  explicit PythonRandom(Mt19937 engine) : engine_(engine) {}

  Mt19937 engine_;
};

}  // namespace clairfs
