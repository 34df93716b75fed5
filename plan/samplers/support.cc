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

/// Every key that only some samplers know, and whether `spec` differs from the default in it.
std::vector<KeyInUse> special_keys(const SamplerSpec& spec) {
  return {
      {"state", !spec.state.empty()},
      {"set_epoch", !spec.set_epoch},
      {"shuffle", !spec.shuffle},
      {"drop_last", spec.drop_last},
      {"persistent_workers", spec.persistent_workers},
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

RankSlice loader_slice(const SamplerSpec& spec, uint64_t count) {
  const uint64_t batch = std::max<uint32_t>(spec.batch, 1);
  return RankSlice{.count = spec.drop_last ? count / batch * batch : count};
}

std::vector<uint32_t> ascending(uint64_t n) {
  std::vector<uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace clairfs
