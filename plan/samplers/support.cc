#include "plan/samplers/support.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <numeric>

namespace clairfs {

Error bad_key(std::string_view key, std::string_view text) {
  return Error{EINVAL, std::string(key) + ": " + std::string(text)};
}

Status check_size(std::string_view key, uint64_t n) {
  if (n <= std::numeric_limits<uint32_t>::max()) return {};
  return bad_key(key, std::to_string(n) + " is too many: an epoch has at most 4294967295 samples");
}

Result<BigInteger> integer_seed(const SamplerSpec& spec) {
  if (spec.seed.empty() || spec.seed == "none" || spec.seed == "None") {
    return bad_key("seed",
                   "missing; without a seed the order of sampler=" + spec.sampler + " cannot be predicted");
  }
  Result<BigInteger> seed = BigInteger::parse(spec.seed);
  if (!seed) return bad_key("seed", seed.error().message);
  return seed;
}

Result<BigInteger> integer_seed_or(const SamplerSpec& spec, uint64_t usual) {
  return spec.seed.empty() ? BigInteger(usual) : integer_seed(spec);
}

Result<std::vector<uint32_t>> seeded_randperm(const BigInteger& seed, uint64_t n, TorchVersion torch) {
  Result<Mt19937> generator = torch_generator(seed);
  if (!generator) return bad_key("seed", "with the epoch's number: " + generator.error().message);
  std::vector<uint32_t> order(n);
  torch_randperm(*generator, order, torch);
  return order;
}

RankSlice loader_slice(const SamplerSpec& spec, uint64_t count) {
  const uint64_t batch = std::max<uint32_t>(spec.batch, 1);
  return RankSlice{.count = spec.drop_last ? count / batch * batch : count};
}

RankSlice batch_slice(uint64_t count, uint64_t batch, uint64_t run, uint64_t rank, bool drop_last) {
  const uint64_t first = std::min(rank * run, batch);
  const uint64_t mine = std::min(run, batch - first);
  const uint64_t rest = drop_last ? 0 : count % batch;
  const uint64_t last = std::min(mine, rest > first ? rest - first : 0);
  return RankSlice{.count = count / batch * mine + last,
                   .start = first,
                   .stride = batch,
                   .run = std::max<uint64_t>(mine, 1)};
}

RankSlice strided_slice(uint64_t count, uint64_t world, uint64_t rank) {
  return RankSlice{
      .count = count > rank ? (count - rank + world - 1) / world : 0, .start = rank, .stride = world};
}

std::vector<uint32_t> ascending(uint64_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace clairfs
