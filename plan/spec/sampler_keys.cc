#include "plan/spec/sampler_keys.h"

namespace clairfs {
namespace {

// Each function below takes a value as the table of plan keys has checked it; empty: not given.

std::optional<ShuffleMethod> method_of(const std::string& value) {
  if (value.empty()) return std::nullopt;
  return value == "shuffle"  ? ShuffleMethod::kShuffle
         : value == "sample" ? ShuffleMethod::kSample
                             : ShuffleMethod::kPermutation;
}

std::optional<Reseed> reseed_of(const std::string& value) {
  if (value.empty()) return std::nullopt;
  return value == "epoch" ? Reseed::kEpoch : Reseed::kOnce;
}

std::optional<TorchGeneratorUse> generator_of(const std::string& value) {
  if (value.empty()) return std::nullopt;
  return value == "loader"    ? TorchGeneratorUse::kLoader
         : value == "sampler" ? TorchGeneratorUse::kSampler
                              : TorchGeneratorUse::kDefault;
}

std::optional<uint64_t> count_of(uint64_t value) {
  return value == 0 ? std::nullopt : std::optional(value);
}

// DataLoader without shuffle makes a SequentialSampler, whatever the generator.
bool is_sequential(const PlanSpec& plan) {
  return !plan.shuffle && (plan.sampler == "torch.random" || plan.sampler == "torch.sequential");
}

bool drops_last(const PlanSpec& plan) {
  const bool own = plan.sampler == "torch.distributed" || plan.sampler == "nopfs";
  return own ? plan.drops_in_sampler() : plan.drops_in_loader();
}

}  // namespace

SamplerSpec sampler_spec(const PlanSpec& plan, uint32_t n) {
  SamplerSpec spec;
  spec.sampler = is_sequential(plan) ? "torch.sequential" : plan.sampler;
  spec.n = n;
  spec.world = static_cast<uint32_t>(plan.world);
  spec.batch = static_cast<uint32_t>(plan.batch);
  spec.seed = plan.seed;
  spec.state = plan.state;
  spec.set_epoch = plan.set_epoch == "always";
  spec.shuffle = plan.shuffle || is_sequential(plan);
  spec.drop_last = drops_last(plan);
  spec.persistent_workers = plan.persistent_workers;
  if (!plan.replacement.empty()) spec.replacement = plan.replacement == "true";
  spec.num_samples = count_of(plan.num_samples);
  spec.generator = generator_of(plan.generator);
  spec.torch = parse_torch_version(plan.torch).value_or(kNewestTorch);
  spec.method = method_of(plan.method);
  spec.reseed = reseed_of(plan.reseed);
  spec.random_shuffle = plan.random_shuffle;
  spec.shuffle_after_epoch = plan.shuffle_after_epoch;
  spec.stick_to_shard = plan.stick_to_shard;
  spec.checkpointing = plan.checkpointing;
  if (plan.gcc != 0) spec.libstdcxx = libstdcxx_shuffle_of(plan.gcc);
  return spec;
}

}  // namespace clairfs
