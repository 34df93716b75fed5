// Python's random.Random(seed), or random.seed(seed).
#include <string_view>

#include "plan/random/python_random.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

constexpr std::string_view kStringSeed = "str:";  // random.seed("text") is written seed=str:text

std::vector<uint32_t> shuffled(PythonRandom& random, std::vector<uint32_t> order) {
  random.shuffle(order);
  return order;
}

}  // namespace

SamplerResult make_python_random(const SamplerSpec& spec) {
  const ShuffleMethod method = spec.method.value_or(ShuffleMethod::permutation);
  const bool sample = method == ShuffleMethod::sample;
  if (spec.num_samples && !sample) return bad_key("num_samples", "with python.random it needs method=sample");
  const uint64_t count = spec.num_samples.value_or(spec.n);
  if (count > spec.n) return bad_key("num_samples", "random.sample takes at most n of n samples");
  const bool is_string = spec.seed.starts_with(kStringSeed);
  const Result<BigInteger> seed = is_string ? BigInteger(0) : integer_seed(spec);
  if (!seed) return seed.error();

  // A fresh order from a generator; the cumulative method starts from the order before instead.
  const auto make = [n = static_cast<uint32_t>(spec.n), k = static_cast<uint32_t>(count),
                     sample](PythonRandom& random) {
    return sample ? random.sample(n, k) : shuffled(random, ascending(n));
  };
  const RankSlice slice = loader_slice(spec, count);
  if (spec.reseed == Reseed::epoch) {
    if (is_string) return bad_key("reseed", "seed + epoch needs a seed that is an integer");
    return SamplerResult(
        std::make_unique<IndependentSampler>(spec.world, slice, [make, seed = *seed](Epoch epoch) {
          PythonRandom random(seed.plus(epoch.value));
          return Result<IndexOrder>(IndexOrder(make(random)));
        }));
  }
  using Stream = EpochStream<PythonRandom>;
  const PythonRandom start =
      is_string ? PythonRandom::from_string(std::string_view(spec.seed).substr(kStringSeed.size()))
                : PythonRandom(*seed);
  const auto step = [make](PythonRandom& random, Epoch, const Stream::Indices& previous) {
    return previous ? shuffled(random, *previous) : make(random);
  };
  Stream stream = method == ShuffleMethod::shuffle ? Stream::cumulative(count, start, step)
                                                   : Stream::independent(count, start, step);
  return SamplerResult(std::make_unique<StreamSampler<PythonRandom>>(spec.world, slice, std::move(stream)));
}

}  // namespace clairfs
