#include "plan/samplers/torch_loader.h"

#include <algorithm>
#include <span>
#include <utility>

#include "plan/random/base64.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr TorchVersion kGeneratorKey{1, 6};      // Sampler(generator=), DataLoader(generator=)
constexpr TorchVersion kPrivateGenerator{1, 7};  // without generator=: one seeded from the default generator
constexpr TorchVersion kPrivateIsUsed{1, 9};     // 1.7 and 1.8 seeded it and then drew from the default one
constexpr TorchVersion kSeveralPermutations{1,
                                            11};  // num_samples without replacement, and a trailing randperm

}  // namespace

Result<Mt19937> torch_starting_generator(const SamplerSpec& spec) {
  if (spec.args.state.empty()) {
    const Result<BigInteger> seed = integer_seed(spec);
    if (!seed) return seed.error();
    Result<Mt19937> generator = torch_generator(*seed);
    if (!generator) return bad_key("seed", generator.error().message);
    return generator;
  }
  if (!spec.seed.empty()) return bad_key("state", "give either the seed or the generator's state, not both");
  const Result<std::string> blob = decode_base64(spec.args.state);
  if (!blob) return bad_key("state", blob.error().message);
  Result<Mt19937> generator = torch_generator_from_state(*blob);
  if (!generator) return bad_key("state", generator.error().message);
  return generator;
}

bool RandomSamplerDraws::private_generator() const {
  if (!options_.default_generator || options_.torch < kPrivateGenerator) return false;
  return options_.replacement || options_.torch >= kPrivateIsUsed;
}

bool RandomSamplerDraws::trailing_permutation() const {
  return !options_.replacement && options_.torch >= kSeveralPermutations && options_.count % options_.n == 0;
}

std::vector<uint32_t> RandomSamplerDraws::order(Mt19937& generator) const {
  if (!options_.default_generator || options_.torch < kPrivateGenerator) return take(generator);
  const uint64_t seed = torch_random_int64(generator);
  if (!private_generator()) return take(generator);
  Mt19937 own(static_cast<uint32_t>(seed));
  return take(own);
}

void RandomSamplerDraws::finish(Mt19937& generator) const {
  if (trailing_permutation() && !private_generator()) {
    generator.discard(torch_randperm_draws(options_.n, options_.torch));
  }
}

void RandomSamplerDraws::skip(Mt19937& generator) const {
  if (options_.default_generator && options_.torch >= kPrivateGenerator)
    generator.discard(kDrawsOfRandomInt64);
  if (!private_generator()) generator.discard(draws_of_order());
  finish(generator);
}

std::vector<uint32_t> RandomSamplerDraws::take(Mt19937& generator) const {
  const auto& [n, count, replacement, unused, torch] = options_;
  std::vector<uint32_t> order(count);
  if (replacement) {
    const bool wide = torch_randint_is_wide(n, torch);
    for (uint32_t& index : order) index = static_cast<uint32_t>(torch_randint(generator, n, wide));
    return order;
  }
  const uint64_t whole = count / n * n;
  for (uint64_t at = 0; at < whole; at += n)
    torch_randperm(generator, std::span(order).subspan(at, n), torch);
  if (whole < count) {
    std::vector<uint32_t> last(n);
    torch_randperm(generator, last, torch);
    std::copy_n(last.begin(), count - whole, order.begin() + static_cast<ptrdiff_t>(whole));
  }
  return order;
}

uint64_t RandomSamplerDraws::draws_of_order() const {
  const auto& [n, count, replacement, unused, torch] = options_;
  if (replacement) return count * (torch_randint_is_wide(n, torch) ? 2 : 1);
  return (count + n - 1) / n * torch_randperm_draws(n, torch);
}

TorchGeneratorUse torch_generator_use(const SamplerSpec& spec, TorchGeneratorUse usual) {
  return spec.generator.value_or(spec.args.state.empty() ? usual : TorchGeneratorUse::default_generator);
}

Result<std::unique_ptr<Sampler>> make_torch_stream(const SamplerSpec& spec, TorchGeneratorUse use,
                                                   TorchEpoch epoch) {
  if (spec.torch < kGeneratorKey) return bad_key("torch", "samplers take a generator since 1.6 only");
  Result<Mt19937> generator = torch_starting_generator(spec);
  if (!generator) return generator.error();
  generator->discard(spec.args.draws);

  // iter(DataLoader) draws its base_seed before the sampler draws, unless its workers live on.
  const auto begin = [use, once = spec.args.persistent_workers, others = spec.args.other_draws](
                         Mt19937& source, Epoch number) {
    if (number.value > 0) source.discard(others);
    if (use == TorchGeneratorUse::sampler || (once && number.value > 0)) return;
    source.discard(kDrawsOfRandomInt64);
  };
  const RankSlice slice = loader_slice(spec, epoch.size);
  auto stream = EpochStream<Mt19937>::independent(
      epoch.size, *generator,
      [begin, order = std::move(epoch.order)](Mt19937& source, Epoch number, const auto&) {
        begin(source, number);
        return order(source);
      },
      [begin, skip = std::move(epoch.skip)](Mt19937& source, Epoch number) {
        begin(source, number);
        skip(source);
      });
  return std::unique_ptr<Sampler>(
      std::make_unique<StreamSampler<Mt19937>>(spec.world, slice, std::move(stream)));
}

}  // namespace clairfs
