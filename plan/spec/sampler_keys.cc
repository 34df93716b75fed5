#include "plan/spec/sampler_keys.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "cache/base/text.h"
#include "plan/samplers/sampler.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// Each function below takes a value as the table of plan keys has checked it; empty: not given.

std::optional<ShuffleMethod> method_of(const std::string& value) {
  if (value.empty()) return std::nullopt;
  return value == "shuffle"  ? ShuffleMethod::shuffle
         : value == "sample" ? ShuffleMethod::sample
                             : ShuffleMethod::permutation;
}

std::optional<Reseed> reseed_of(const std::string& value) {
  if (value.empty()) return std::nullopt;
  return value == "epoch" ? Reseed::epoch : Reseed::once;
}

std::optional<TorchGeneratorUse> generator_of(const std::string& value) {
  if (value.empty()) return std::nullopt;
  return value == "loader"    ? TorchGeneratorUse::loader
         : value == "sampler" ? TorchGeneratorUse::sampler
                              : TorchGeneratorUse::default_generator;
}

ShardPlace shard_place_of(const std::string& value) {
  return value == "before" ? ShardPlace::before : value == "after" ? ShardPlace::after : ShardPlace::none;
}

LibraryVersion version_of(const std::string& value) {
  return parse_torch_version(value).value_or(kNewestLibrary);
}

// DataLoader without shuffle makes a SequentialSampler, whatever the generator.
bool is_sequential(const PlanSpec& plan) {
  return !plan.shuffle && (plan.sampler == "torch.random" || plan.sampler == "torch.sequential");
}

std::string sampler_name(const PlanSpec& plan) {
  return is_sequential(plan) ? "torch.sequential" : plan.sampler;
}

// Every key that only some samplers take.
const std::set<std::string_view>& keys_of_some() {
  static const std::set<std::string_view> some = [] {
    std::set<std::string_view> keys;
    for (const std::string& sampler : sampler_names()) {
      const auto own = sampler_keys(sampler);
      keys.insert(own.begin(), own.end());
    }
    return keys;
  }();
  return some;
}

bool drops_last(const PlanSpec& plan) {
  return sampler_traits(plan.sampler).drops ? plan.drops_in_sampler() : plan.drops_in_loader();
}

}  // namespace

SamplerSpec sampler_spec(const PlanSpec& plan, uint32_t n) {
  SamplerSpec spec;
  spec.sampler = sampler_name(plan);
  spec.n = n;
  spec.world = static_cast<uint32_t>(plan.world);
  spec.batch = static_cast<uint32_t>(plan.batch);
  spec.seed = plan.seed;
  spec.args = static_cast<const SamplerKeys&>(plan);
  spec.set_epoch = plan.set_epoch == "always";
  spec.shuffle = plan.shuffle || is_sequential(plan);
  spec.drop_last = drops_last(plan);
  if (!plan.replacement.empty()) spec.replacement = plan.replacement == "true";
  if (plan.num_samples != 0) spec.num_samples = plan.num_samples;
  spec.generator = generator_of(plan.generator);
  spec.torch = parse_torch_version(plan.torch).value_or(kNewestTorch);
  spec.method = method_of(plan.method);
  spec.reseed = reseed_of(plan.reseed);
  spec.ranks_per_node = static_cast<uint32_t>(plan.ranks_per_node);
  spec.workers = static_cast<uint32_t>(plan.workers);
  spec.first_epoch = static_cast<uint32_t>(plan.first_epoch - plan.epochs_before);
  spec.dataset_shuffle = plan.dataset_shuffle;
  spec.accelerate = version_of(plan.accelerate);
  spec.torchdata = version_of(plan.torchdata);
  if (!plan.num_repeats.empty()) spec.num_repeats = std::strtod(plan.num_repeats.c_str(), nullptr);
  spec.shard = shard_place_of(plan.shard);
  if (!plan.shardshuffle.empty()) spec.shardshuffle = parse_whole<uint64_t>(plan.shardshuffle);
  if (plan.gcc != 0) spec.libstdcxx = libstdcxx_shuffle_of(plan.gcc);
  return spec;
}

Status check_sampler_keys(const PlanSpec& plan) {
  const std::string sampler = sampler_name(plan);
  const auto taken = sampler_keys(sampler);
  for (const PlanKey& key : plan_keys()) {
    const bool is_taken = std::ranges::find(taken, key.name) != taken.end();
    if (is_taken || !keys_of_some().contains(key.name) || !plan_value_shown(key, plan)) continue;
    std::string text = "has no meaning for sampler=" + sampler;
    if (key.name == "shuffle") text += "; an order without shuffling is sampler=torch.sequential";
    if (key.name == "cycle_length") {
      text +=
          "; want tf.list_files or tf.shuffle, or the order of the files as torch.sequential, "
          "numpy.*, python.random or list";
    }
    return plan_error(key.name, plan_value(key, plan), text);
  }
  return {};
}

}  // namespace clairfs
