#include "plan/random/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <string>
#include <utility>

#include "plan/random/sha512.h"

namespace clairfs {
namespace {

// Whether sample() copies the population into a pool rather than remembering what it drew.
bool samples_from_pool(uint64_t n, uint64_t k) {
  uint64_t set_size = 21;  // Lib/random.py: size of a small set minus size of an empty list
  if (k > 5) {
    uint64_t table = 1;
    while (table < 3 * k) table *= 4;
    set_size += table;
  }
  return n <= set_size;
}

}  // namespace

PythonRandom::PythonRandom(const BigInteger& seed) : engine_(Mt19937::from_key(seed.magnitude())) {}

PythonRandom PythonRandom::from_string(std::string_view seed) {
  const auto digest = sha512(seed);
  std::string bytes(seed);
  bytes.append(digest.begin(), digest.end());
  // int.from_bytes(bytes, "big") as words, least significant first
  std::vector<uint32_t> key((bytes.size() + 3) / 4);
  for (size_t i = 0; i < bytes.size(); ++i) {
    key[i / 4] |= uint32_t{static_cast<uint8_t>(bytes[bytes.size() - 1 - i])} << (8 * (i % 4));
  }
  while (key.size() > 1 && key.back() == 0) key.pop_back();
  return PythonRandom(Mt19937::from_key(key));
}

uint32_t PythonRandom::below(uint32_t n) {
  const auto width = static_cast<uint32_t>(std::bit_width(n));
  uint32_t value = bits(width);
  while (value >= n) value = bits(width);
  return value;
}

void PythonRandom::shuffle(std::span<uint32_t> order) {
  for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[below(static_cast<uint32_t>(i + 1))]);
}

std::vector<uint32_t> PythonRandom::sample(uint32_t n, uint32_t k) {
  std::vector<uint32_t> chosen(k);
  if (samples_from_pool(n, k)) {
    std::vector<uint32_t> pool(n);
    std::iota(pool.begin(), pool.end(), 0);
    for (uint32_t i = 0; i < k; ++i) {
      const uint32_t j = below(n - i);
      chosen[i] = std::exchange(pool[j], pool[n - i - 1]);
    }
    return chosen;
  }
  std::vector<bool> seen(n);
  for (uint32_t& value : chosen) {
    do value = below(n);
    while (seen[value]);
    seen[value] = true;
  }
  return chosen;
}

}  // namespace clairfs
