#include "plan/samplers/support.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <numeric>

namespace clairfs {
namespace {

struct KeyInUse {
  std::string_view key;
  bool set;
};

// Every key that only some samplers know, and whether `spec` differs from the default in it.
std::vector<KeyInUse> special_keys(const SamplerSpec& spec) {
  return {
      {"state", !spec.state.empty()},
      {"set_epoch", !spec.set_epoch},
      {"shuffle", !spec.shuffle},
      {"drop_last", spec.drop_last},
      {"persistent_workers", spec.persistent_workers},
      {"draws", spec.draws != 0},
      {"other_draws", spec.other_draws != 0},
      {"replacement", spec.replacement.has_value()},
      {"num_samples", spec.num_samples.has_value()},
      {"generator", spec.generator.has_value()},
      {"torch", spec.torch != kNewestTorch},
      {"method", spec.method.has_value()},
      {"reseed", spec.reseed.has_value()},
      {"random_shuffle", spec.random_shuffle},
      {"shuffle_after_epoch", spec.shuffle_after_epoch},
      {"stick_to_shard", spec.stick_to_shard},
      {"checkpointing", spec.checkpointing},
      {"gcc", spec.libstdcxx.has_value()},
      {"block", spec.block != 1},
      {"use_seedable_sampler", !spec.use_seedable_sampler},
      {"even_batches", !spec.even_batches},
      {"split_batches", spec.split_batches},
      {"dispatch_batches", spec.dispatch_batches},
      {"accelerate", spec.accelerate != kNewestLibrary},
      {"torchdata", spec.torchdata != kNewestLibrary},
      {"num_repeats", spec.num_repeats != 3},
      {"selected_round", spec.selected_round != 256},
      {"selected_ratio", spec.selected_ratio != 0},
      {"data_sharding", !spec.data_sharding},
      {"buffer_size", spec.buffer_size != 0},
      {"global_seed", !spec.global_seed.empty()},
      {"reshuffle_each_iteration", !spec.reshuffle_each_iteration},
      {"shard", spec.shard != ShardPlace::none},
      {"shardshuffle", spec.shardshuffle.has_value()},
      {"initial", spec.initial.has_value()},
      {"detshuffle", spec.detshuffle},
      {"shard_sizes", spec.shard_sizes != nullptr},
      {"shuffle_algo", !spec.shuffle_algo.empty()},
      {"shuffle_block_size", spec.shuffle_block_size != 0},
      {"num_canonical_nodes", spec.num_canonical_nodes != 0},
      {"initial_physical_nodes", spec.initial_physical_nodes != 0},
      {"sample_in_epoch", spec.sample_in_epoch != 0},
      {"weights", !spec.weights.empty()},
      {"list", spec.lists != nullptr},
  };
}

}  // namespace

Error bad_key(std::string_view key, std::string_view text) {
  return Error{EINVAL, std::string(key) + ": " + std::string(text)};
}

Status only_keys(const SamplerSpec& spec, std::initializer_list<std::string_view> allowed) {
  for (const auto& [key, set] : special_keys(spec)) {
    if (!set || std::ranges::find(allowed, key) != allowed.end()) continue;
    std::string text = "has no meaning for sampler=" + spec.sampler;
    if (key == "shuffle") text += "; an order without shuffling is sampler=torch.sequential";
    return bad_key(key, text);
  }
  return {};
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
