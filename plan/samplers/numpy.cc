// numpy.random.default_rng(seed) and numpy.random.RandomState(seed) / numpy.random.seed(seed).
#include <optional>
#include <string_view>

#include "plan/random/mt19937.h"
#include "plan/random/numpy_shuffle.h"
#include "plan/random/pcg64.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

using Seeds = std::vector<BigInteger>;  // the elements of a list, or one integer

// "42" or "[1, 2, 3]".
Result<Seeds> parse_seeds(const SamplerSpec& spec, bool& is_list) {
  is_list = spec.seed.starts_with('[') && spec.seed.ends_with(']');
  if (!is_list) {
    Result<BigInteger> seed = integer_seed(spec);
    if (!seed) return seed.error();
    return Seeds{std::move(*seed)};
  }
  Seeds seeds;
  std::string_view rest = std::string_view(spec.seed).substr(1, spec.seed.size() - 2);
  while (true) {
    const size_t comma = rest.find(',');
    std::string_view element = rest.substr(0, comma);
    while (element.starts_with(' ')) element.remove_prefix(1);
    const Result<BigInteger> seed = BigInteger::parse(element);
    if (!seed) return bad_key("seed", seed.error().message);
    seeds.push_back(*seed);
    if (comma == std::string_view::npos) return seeds;
    rest.remove_prefix(comma + 1);
  }
}

Result<Pcg64> default_rng(const Seeds& seeds, bool) {
  for (const BigInteger& seed : seeds) {
    if (seed.negative()) return bad_key("seed", "numpy.random.default_rng takes integers >= 0");
  }
  return Pcg64(SeedSequence(seeds));
}

Result<Mt19937> legacy(const Seeds& seeds, bool is_list) {
  std::vector<uint32_t> key;
  for (const BigInteger& seed : seeds) {
    if (seed.negative() || seed.magnitude().size() > 1) {
      return bad_key("seed", "numpy's legacy generator takes integers from 0 to 2^32 - 1");
    }
    key.push_back(seed.magnitude()[0]);
  }
  return is_list ? Mt19937::from_key(key) : Mt19937(key[0]);
}

// `make(seeds, is_list)` gives the generator.
template <class Generator>
SamplerResult make_numpy(const SamplerSpec& spec, Result<Generator> (*make)(const Seeds&, bool)) {
  const ShuffleMethod method = spec.method.value_or(ShuffleMethod::permutation);
  if (method == ShuffleMethod::sample) return bad_key("method", "NumPy has permutation and shuffle");
  bool is_list = false;
  const Result<Seeds> seeds = parse_seeds(spec, is_list);
  if (!seeds) return seeds.error();
  const Result<Generator> start = make(*seeds, is_list);
  if (!start) return start.error();

  const RankSlice slice = loader_slice(spec, spec.n);
  if (spec.reseed == Reseed::epoch) {
    if (is_list) return bad_key("reseed", "seed + epoch needs a seed that is one integer");
    const auto fresh = [make, n = spec.n, seed = seeds->front()](Epoch epoch) -> Result<IndexOrder> {
      Result<Generator> generator = make({seed.plus(epoch.value)}, false);
      if (!generator) return generator.error();
      std::vector<uint32_t> order = ascending(n);
      numpy_shuffle(*generator, order);
      return IndexOrder(std::move(order));
    };
    return SamplerResult(std::make_unique<IndependentSampler>(spec.world, slice, fresh));
  }
  using Stream = EpochStream<Generator>;
  const auto step = [n = spec.n](Generator& generator, Epoch, const typename Stream::Indices& previous) {
    std::vector<uint32_t> order = previous ? *previous : ascending(n);
    numpy_shuffle(generator, order);
    return order;
  };
  Stream stream = method == ShuffleMethod::shuffle ? Stream::cumulative(spec.n, *start, step)
                                                   : Stream::independent(spec.n, *start, step);
  return SamplerResult(std::make_unique<StreamSampler<Generator>>(spec.world, slice, std::move(stream)));
}

}  // namespace

SamplerResult make_numpy_default_rng(const SamplerSpec& spec) {
  return make_numpy<Pcg64>(spec, default_rng);
}

SamplerResult make_numpy_legacy(const SamplerSpec& spec) {
  return make_numpy<Mt19937>(spec, legacy);
}

}  // namespace clairfs
