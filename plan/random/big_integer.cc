#include "plan/random/big_integer.h"

#include <algorithm>
#include <cerrno>
#include <string>

namespace clairfs {
namespace {

constexpr size_t kMaxDigits = 1000;

void trim(std::vector<uint32_t>& words) {
  while (words.size() > 1 && words.back() == 0) words.pop_back();
}

// words = words * factor + addend
void multiply_add(std::vector<uint32_t>& words, uint32_t factor, uint32_t addend) {
  uint64_t carry = addend;
  for (uint32_t& word : words) {
    carry += uint64_t{word} * factor;
    word = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  if (carry != 0) words.push_back(static_cast<uint32_t>(carry));
}

// REQUIRES: words >= value.
void subtract(std::vector<uint32_t>& words, uint64_t value) {
  uint64_t borrow = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const uint64_t part = (i < 2 ? (value >> (32 * i)) & 0xffffffff : 0) + borrow;
    borrow = words[i] < part ? 1 : 0;
    words[i] = static_cast<uint32_t>(words[i] - part);
  }
  trim(words);
}

std::optional<uint64_t> low64(const std::vector<uint32_t>& words) {
  if (words.size() > 2) return std::nullopt;
  return words[0] | (words.size() == 2 ? uint64_t{words[1]} << 32 : 0);
}

}  // namespace

BigInteger::BigInteger(uint64_t value)
    : words_{static_cast<uint32_t>(value), static_cast<uint32_t>(value >> 32)} {
  trim(words_);
}

Result<BigInteger> BigInteger::parse(std::string_view text) {
  std::string_view digits = text;
  const bool minus = digits.starts_with('-');
  if (minus || digits.starts_with('+')) digits.remove_prefix(1);
  const bool decimal =
      !digits.empty() && std::ranges::all_of(digits, [](char c) { return c >= '0' && c <= '9'; });
  if (!decimal || digits.size() > kMaxDigits) {
    return Error{EINVAL, "'" + std::string(text.substr(0, 64)) + "' is not an integer (example: 42)"};
  }
  BigInteger value;
  for (const char digit : digits) multiply_add(value.words_, 10, static_cast<uint32_t>(digit - '0'));
  value.negative_ = minus && value.words_ != std::vector<uint32_t>{0};
  return value;
}

BigInteger BigInteger::plus(uint64_t addend) const {
  BigInteger sum = *this;
  const std::optional<uint64_t> small = low64(words_);
  if (negative_ && small && *small <= addend) return BigInteger(addend - *small);
  if (negative_) {
    subtract(sum.words_, addend);
    return sum;
  }
  uint64_t carry = 0;
  for (size_t i = 0; i < 2 || carry != 0; ++i) {
    if (i == sum.words_.size()) sum.words_.push_back(0);
    carry += uint64_t{sum.words_[i]} + (i < 2 ? (addend >> (32 * i)) & 0xffffffff : 0);
    sum.words_[i] = static_cast<uint32_t>(carry);
    carry >>= 32;
  }
  trim(sum.words_);
  return sum;
}

std::optional<uint64_t> BigInteger::as_uint64() const {
  return negative_ ? std::nullopt : low64(words_);
}

std::optional<int64_t> BigInteger::as_int64() const {
  const std::optional<uint64_t> size = low64(words_);
  constexpr uint64_t kHalf = uint64_t{1} << 63;
  if (!size || *size > kHalf || (*size == kHalf && !negative_)) return std::nullopt;
  return static_cast<int64_t>(negative_ ? 0 - *size : *size);
}

}  // namespace clairfs
