// Torch's draws from its CPU generator: seeds, states, randperm, randint, multinomial. Source:
// ATen/core/MT19937RNGEngine.h, ATen/CPUGeneratorImpl.cpp, native/TensorFactories.cpp,
// native/cpu/DistributionTemplates.h, native/cpu/MultinomialKernel.cpp (1.6 to 2.14).
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "cache/base/result.h"
#include "plan/random/big_integer.h"
#include "plan/random/mt19937.h"

namespace clairfs {

struct TorchVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
  auto operator<=>(const TorchVersion&) const = default;
};

/// "2.6", "1.13.1+cpu": major and minor count. Empty when the text has no two numbers.
std::optional<TorchVersion> parse_torch_version(std::string_view text);

/// Compares above every release.
inline constexpr TorchVersion kNewestTorch{std::numeric_limits<uint32_t>::max(), 0};

/// torch.Generator().manual_seed(seed), or torch.manual_seed(seed) for the default generator.
/// Errors: EINVAL when the seed is outside of [-2^63, 2^64 - 1]. (Only its low 32 bits reach the engine.)
Result<Mt19937> torch_generator(const BigInteger& seed);

/// The generator whose get_state() returned `blob` (5056 bytes). Errors: EINVAL.
Result<Mt19937> torch_generator_from_state(std::string_view blob);

/// tensor(int64).random_(): how DataLoader and RandomSampler draw seeds. Two 32-bit draws.
inline uint64_t torch_random_int64(Mt19937& generator) {
  return generator.next64() & (~uint64_t{0} >> 1);
}
inline constexpr uint64_t kDrawsOfRandomInt64 = 2;

/// torch.randperm(order.size(), generator=generator) into `order`. REQUIRES: order.size() < 2^32.
void torch_randperm(Mt19937& generator, std::span<uint32_t> order, TorchVersion version);
/// How many 32-bit draws that takes.
uint64_t torch_randperm_draws(uint64_t n, TorchVersion version);

/// Whether torch.randint(high) takes two 32-bit draws per element instead of one.
bool torch_randint_is_wide(uint64_t high, TorchVersion version);
/// One element of torch.randint(high, (...), generator=generator).
uint64_t torch_randint(Mt19937& generator, uint64_t high, bool wide);

/// torch.multinomial(weights, count, replacement=True) on float64 weights. Immutable; draw() is thread-safe.
/// Memory: 12 bytes per weight.
class TorchMultinomial {
 public:
  /// REQUIRES: finite weights >= 0 with a finite sum > 0; fewer than 2^32 of them.
  explicit TorchMultinomial(std::span<const double> weights);

  uint32_t draw(Mt19937& generator) const;

 private:
  std::vector<double> cumulative_;    ///< normalised; the last is 1
  std::vector<uint32_t> first_from_;  ///< [b]: first index whose cumulative weight is >= b / size
};

}  // namespace clairfs
