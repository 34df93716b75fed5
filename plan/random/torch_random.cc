#include "plan/random/torch_random.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "cache/base/text.h"

namespace clairfs {
namespace {

// From this size on torch >= 2.6 needs 64-bit draws to keep the modulo bias small (UINT32_MAX / 20).
constexpr uint64_t kHugeRandperm = 214748364;
constexpr TorchVersion kUnbiasedRandperm{2, 6};
// randint's switch to 64-bit draws moved from 2^32 to 2^28 in 2.7.
constexpr TorchVersion kEarlyWideRandint{2, 7};

bool inside_out(uint64_t n, TorchVersion version) {
  return n >= kHugeRandperm && version >= kUnbiasedRandperm;
}

// get_state(): u64 seed, i32 left, i32 seeded, u64 next, u64 words[624], then leftovers of normal draws.
constexpr size_t kStateBytes = 5056;
constexpr size_t kLeftAt = 8;
constexpr size_t kSeededAt = 12;
constexpr size_t kNextAt = 16;
constexpr size_t kWordsAt = 24;

template <class T>
T little_endian(std::string_view bytes, size_t at) {
  uint64_t value = 0;
  for (size_t i = sizeof(T); i-- > 0;) value = (value << 8) | static_cast<uint8_t>(bytes[at + i]);
  return static_cast<T>(value);
}

}  // namespace

std::optional<TorchVersion> parse_torch_version(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view minor = text.substr(dot + 1);
  TorchVersion version;
  const auto major = parse_whole<decltype(version.major)>(text.substr(0, dot));
  const auto parsed = std::from_chars(minor.data(), minor.data() + minor.size(), version.minor);
  if (!major || parsed.ec != std::errc()) return std::nullopt;
  version.major = *major;
  return version;
}

Result<Mt19937> torch_generator(const BigInteger& seed) {
  if (const auto value = seed.as_uint64()) return Mt19937(static_cast<uint32_t>(*value));
  if (const auto value = seed.as_int64()) return Mt19937(static_cast<uint32_t>(*value));
  return Error{EINVAL, "torch takes seeds from -2^63 to 2^64 - 1"};
}

Result<Mt19937> torch_generator_from_state(std::string_view blob) {
  if (blob.size() != kStateBytes) {
    return Error{EINVAL, "a torch CPU generator's get_state() has " + std::to_string(kStateBytes) +
                             " bytes, not " + std::to_string(blob.size())};
  }
  const auto left = little_endian<int32_t>(blob, kLeftAt);
  const auto next = little_endian<uint64_t>(blob, kNextAt);
  constexpr auto kWords = static_cast<int32_t>(Mt19937::kWords);
  // left == 1: the block is used up; otherwise `next` words of it were drawn and left + next stays 625.
  const bool consistent =
      left >= 1 && left <= kWords && (left == 1 || next == Mt19937::kWords + 1 - static_cast<uint64_t>(left));
  if (!consistent || little_endian<int32_t>(blob, kSeededAt) != 1) {
    return Error{EINVAL, "not the get_state() of a torch CPU generator"};
  }
  std::array<uint32_t, Mt19937::kWords> words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = little_endian<uint32_t>(blob, kWordsAt + 8 * i);
  return Mt19937::from_state(words, left == 1 ? Mt19937::kWords : next);
}

void torch_randperm(Mt19937& generator, std::span<uint32_t> order, TorchVersion version) {
  const size_t n = order.size();
  if (inside_out(n, version)) {
    for (size_t i = 0; i < n; ++i) {
      const uint64_t z = generator.next64() % (i + 1);
      order[i] = order[z];
      order[z] = static_cast<uint32_t>(i);
    }
    return;
  }
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = 0; i + 1 < n; ++i) {
    const uint32_t z = generator.next32() % static_cast<uint32_t>(n - i);
    std::swap(order[i], order[i + z]);
  }
}

uint64_t torch_randperm_draws(uint64_t n, TorchVersion version) {
  if (inside_out(n, version)) return 2 * n;
  return n == 0 ? 0 : n - 1;
}

bool torch_randint_is_wide(uint64_t high, TorchVersion version) {
  return high >= uint64_t{1} << (version >= kEarlyWideRandint ? 28 : 32);
}

uint64_t torch_randint(Mt19937& generator, uint64_t high, bool wide) {
  return (wide ? generator.next64() : generator.next32()) % high;
}

TorchMultinomial::TorchMultinomial(std::span<const double> weights) : cumulative_(weights.size()) {
  std::partial_sum(weights.begin(), weights.end(), cumulative_.begin());
  const double total = cumulative_.back();
  for (double& value : cumulative_) value /= total;
  cumulative_.back() = 1.0;
  // Starting points for draw(): without them each draw is a binary search of cache misses.
  first_from_.resize(weights.size());
  size_t index = 0;
  for (size_t bucket = 0; bucket < first_from_.size(); ++bucket) {
    const double from = static_cast<double>(bucket) / static_cast<double>(weights.size());
    while (cumulative_[index] < from) ++index;
    first_from_[bucket] = static_cast<uint32_t>(index);
  }
}

uint32_t TorchMultinomial::draw(Mt19937& generator) const {
  constexpr uint64_t kMantissa = (uint64_t{1} << 53) - 1;
  const double u = static_cast<double>(generator.next64() & kMantissa) * 0x1p-53;
  // torch's binary search finds the first cumulative weight >= u; walking finds the same, in one step on
  // average.
  const auto size = static_cast<double>(first_from_.size());
  auto bucket = static_cast<size_t>(u * size);
  while (bucket == first_from_.size() || static_cast<double>(bucket) / size > u) --bucket;
  size_t index = first_from_[bucket];
  while (cumulative_[index] < u) ++index;
  return static_cast<uint32_t>(index);
}

}  // namespace clairfs
