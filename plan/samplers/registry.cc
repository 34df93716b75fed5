#include <algorithm>
#include <cerrno>
#include <iterator>
#include <string_view>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

struct Family {
  std::string_view name;
  SamplerResult (*make)(const SamplerSpec&);
  std::string_view keys[10];  // see sampler_keys()
  SamplerTraits traits = {};
};

constexpr SamplerTraits kDividesAndDrops{.divides = true, .drops = true};
constexpr SamplerTraits kDividesUnseeded{.divides = true, .seeded = false};
constexpr SamplerTraits kOwnBatches{.divides = true, .in_loader = false};
constexpr SamplerTraits kOwnBatchesAndDrops{.divides = true, .in_loader = false, .drops = true};
constexpr SamplerTraits kOwnBatchesUnseeded{.divides = true, .seeded = false, .in_loader = false};

constexpr Family kFamilies[] = {
    {"torch.distributed",
     make_torch_distributed,
     {"set_epoch", "shuffle", "drop_last", "persistent_workers", "torch"},
     kDividesAndDrops},
    {"torch.random",
     make_torch_random,
     {"state", "drop_last", "persistent_workers", "draws", "other_draws", "replacement", "num_samples",
      "generator", "torch"}},
    {"torch.sequential",
     make_torch_sequential,
     {"drop_last", "persistent_workers", "shuffle", "torch", "cycle_length"},
     {.seeded = false}},
    {"torch.subset",
     make_torch_subset,
     {"state", "drop_last", "persistent_workers", "draws", "other_draws", "generator", "torch"}},
    {"torch.weighted",
     make_torch_weighted,
     {"state", "drop_last", "persistent_workers", "draws", "other_draws", "replacement", "num_samples",
      "generator", "torch"}},
    {"numpy.default_rng", make_numpy_default_rng, {"method", "reseed", "drop_last", "cycle_length"}},
    {"numpy.legacy", make_numpy_legacy, {"method", "reseed", "drop_last", "cycle_length"}},
    {"python.random", make_python_random, {"method", "reseed", "drop_last", "num_samples", "cycle_length"}},
    {"nopfs", make_nopfs, {"drop_last"}, kOwnBatchesAndDrops},
    {"dali",
     make_dali,
     {"random_shuffle", "shuffle_after_epoch", "stick_to_shard", "checkpointing", "epochs_before", "gcc"},
     kOwnBatchesUnseeded},
    {"list", make_list, {"drop_last", "persistent_workers", "cycle_length"}, kDividesUnseeded},
    {"strided", make_strided, {"block", "shuffle"}, kOwnBatchesUnseeded},
    {"accelerate",
     make_accelerate,
     {"drop_last", "persistent_workers", "torch", "accelerate", "even_batches", "split_batches",
      "dispatch_batches", "use_seedable_sampler", "state", "generator"},
     kOwnBatchesAndDrops},
    {"lightning",
     make_lightning,
     {"set_epoch", "drop_last", "persistent_workers", "torch"},
     kDividesUnseeded},
    {"lightning.predict",
     make_lightning_predict,
     {"set_epoch", "drop_last", "persistent_workers", "shuffle", "torch"},
     kDividesUnseeded},
    {"timm.ordered",
     make_timm_ordered,
     {"drop_last", "persistent_workers", "shuffle", "torch"},
     kDividesUnseeded},
    {"timm.repeataug",
     make_timm_repeat_augmentation,
     {"set_epoch", "drop_last", "persistent_workers", "shuffle", "torch", "num_repeats", "selected_round",
      "selected_ratio"},
     kDividesUnseeded},
    {"torchvision.ra",
     make_torchvision_repeat_augmentation,
     {"set_epoch", "drop_last", "persistent_workers", "shuffle", "torch", "num_repeats"},
     kDividesUnseeded},
    {"megatron.random",
     make_megatron_random,
     {"drop_last", "persistent_workers", "torch", "data_sharding"},
     kOwnBatchesUnseeded},
    {"megatron.sequential",
     make_megatron_sequential,
     {"drop_last", "persistent_workers", "shuffle"},
     kOwnBatchesUnseeded},
    {"torchdata.random",
     make_torchdata_random,
     {"state", "drop_last", "persistent_workers", "replacement", "num_samples", "generator", "torch",
      "torchdata"}},
    {"grain", make_grain, {"shuffle", "drop_last", "persistent_workers"}, kOwnBatchesAndDrops},
    {"tf.shuffle",
     make_tf_shuffle,
     {"shuffle", "buffer_size", "global_seed", "reshuffle_each_iteration", "shard", "cycle_length",
      "epochs_before"},
     kOwnBatches},
    {"tf.list_files",
     make_tf_list_files,
     {"shuffle", "global_seed", "shard", "cycle_length", "epochs_before"},
     kOwnBatches},
    {"webdataset",
     make_webdataset,
     {"shuffle", "shardshuffle", "detshuffle", "persistent_workers", "initial", "shard", "method",
      "set_epoch", "epochs_before"},
     kOwnBatchesUnseeded},
    {"streaming",
     make_streaming,
     {"shuffle", "drop_last", "persistent_workers", "shard_sizes", "shuffle_algo", "shuffle_block_size",
      "num_canonical_nodes", "initial_physical_nodes", "sample_in_epoch"},
     kDividesUnseeded},
};

struct OtherName {
  std::string_view name;
  std::string_view canonical;
};

// As frameworks write them: their classes, modules and usual short names.
constexpr OtherName kOtherNames[] = {
    {"distributedsampler", "torch.distributed"},
    {"distributed", "torch.distributed"},
    {"random", "torch.random"},
    {"shuffle", "torch.random"},
    {"sequential", "torch.sequential"},
    {"default_rng", "numpy.default_rng"},
    {"randomstate", "numpy.legacy"},
    {"numpy.random.default_rng", "numpy.default_rng"},
    {"np.random.default_rng", "numpy.default_rng"},
    {"numpy.random.randomstate", "numpy.legacy"},
    {"np.random.randomstate", "numpy.legacy"},
    {"torch.utils.data.distributedsampler", "torch.distributed"},
    {"torch.utils.data.distributed.distributedsampler", "torch.distributed"},
    {"statefuldistributedsampler", "torch.distributed"},
    {"torchdata.stateful_dataloader.sampler.statefuldistributedsampler", "torch.distributed"},
    {"torchdata.distributed", "torch.distributed"},
    {"randomsampler", "torch.random"},
    {"torch.utils.data.randomsampler", "torch.random"},
    {"torch.utils.data.sampler.randomsampler", "torch.random"},
    {"sequentialsampler", "torch.sequential"},
    {"torch.utils.data.sequentialsampler", "torch.sequential"},
    {"torch.utils.data.sampler.sequentialsampler", "torch.sequential"},
    {"subsetrandomsampler", "torch.subset"},
    {"torch.utils.data.subsetrandomsampler", "torch.subset"},
    {"torch.utils.data.sampler.subsetrandomsampler", "torch.subset"},
    {"weightedrandomsampler", "torch.weighted"},
    {"torch.utils.data.weightedrandomsampler", "torch.weighted"},
    {"torch.utils.data.sampler.weightedrandomsampler", "torch.weighted"},
    {"caffe", "strided"},
    {"lmdbio", "strided"},
    {"seedablerandomsampler", "accelerate"},
    {"batchsamplershard", "accelerate"},
    {"accelerate.data_loader.seedablerandomsampler", "accelerate"},
    {"accelerate.data_loader.batchsamplershard", "accelerate"},
    {"transformers", "accelerate"},
    {"transformers.trainer", "accelerate"},
    {"trainer", "accelerate"},
    {"pytorch_lightning", "lightning"},
    {"lightning.pytorch", "lightning"},
    {"unrepeateddistributedsampler", "lightning.predict"},
    {"ordereddistributedsampler", "timm.ordered"},
    {"timm.ordereddistributedsampler", "timm.ordered"},
    {"timm.data.distributed_sampler.ordereddistributedsampler", "timm.ordered"},
    {"repeataugsampler", "timm.repeataug"},
    {"timm.repeataugsampler", "timm.repeataug"},
    {"timm.data.distributed_sampler.repeataugsampler", "timm.repeataug"},
    {"torchvision.rasampler", "torchvision.ra"},
    {"megatron", "megatron.sequential"},
    {"megatronpretrainingsampler", "megatron.sequential"},
    {"megatronpretrainingrandomsampler", "megatron.random"},
    {"megatron.legacy.data.data_samplers.megatronpretrainingsampler", "megatron.sequential"},
    {"megatron.legacy.data.data_samplers.megatronpretrainingrandomsampler", "megatron.random"},
    {"megatron.training.datasets.data_samplers.megatronpretrainingsampler", "megatron.sequential"},
    {"megatron.training.datasets.data_samplers.megatronpretrainingrandomsampler", "megatron.random"},
    {"torchdata", "torchdata.random"},
    {"statefuldataloader", "torchdata.random"},
    {"torchdata.statefuldataloader", "torchdata.random"},
    {"torchdata.stateful_dataloader.statefuldataloader", "torchdata.random"},
    {"torchdata.stateful_dataloader.sampler.randomsampler", "torchdata.random"},
    {"indexsampler", "grain"},
    {"grain.indexsampler", "grain"},
    {"grain.python.indexsampler", "grain"},
    {"grain.samplers.indexsampler", "grain"},
    {"tf_shuffle", "tf.shuffle"},
    {"tf.data", "tf.shuffle"},
    {"tf.data.dataset.shuffle", "tf.shuffle"},
    {"tf.data.dataset.list_files", "tf.list_files"},
    {"wds", "webdataset"},
    {"wds.webdataset", "webdataset"},
    {"webdataset.webdataset", "webdataset"},
    {"simpleshardlist", "webdataset"},
    {"wds.simpleshardlist", "webdataset"},
    {"webdataset.simpleshardlist", "webdataset"},
    {"webdataset.shardlists.simpleshardlist", "webdataset"},
    {"fn.readers.file", "dali"},
    {"nvidia.dali.fn.readers.file", "dali"},
    {"mosaicml", "streaming"},
    {"mosaicml.streaming", "streaming"},
    {"streamingdataset", "streaming"},
    {"streaming.streamingdataset", "streaming"},
};

// Known by name (also as "name.anything") and not implemented.
constexpr std::string_view kOthers[] = {
    "tensorflow", "keras", "fairseq", "huggingface", "datasets", "hf", "deepspeed", "ffcv", "litdata",
};

bool is_other(std::string_view sampler) {
  const std::string_view family = sampler.substr(0, sampler.find_first_of(".-:"));
  return std::ranges::find(kOthers, family) != std::end(kOthers);
}

std::string joined_names() {
  std::string names;
  for (const Family& family : kFamilies) names += (names.empty() ? "" : ", ") + std::string(family.name);
  return names;
}

Status check_common(const SamplerSpec& spec) {
  if (!spec.in_order) {
    return Error{
        ENOTSUP,
        "in_order: with in_order=False the batches come in the order in which workers happen to finish, "
        "which cannot be predicted; leave in_order at True"};
  }
  if (spec.world == 0) return bad_key("world", "0; the job has at least one training rank");
  if (spec.batch == 0) return bad_key("batch", "0; a batch has at least one sample");
  return check_size("n", spec.n);
}

}  // namespace

Result<std::unique_ptr<Sampler>> make_sampler(const SamplerSpec& spec) {
  const auto* const family = std::ranges::find(kFamilies, spec.sampler, &Family::name);
  if (family != std::end(kFamilies)) {
    const Status checked = check_common(spec);
    if (!checked) return checked.error();
    SamplerResult made = family->make(spec);
    if (!made || spec.dataset_shuffle.empty()) return made;
    return make_dataset_shuffle(spec, std::move(*made));
  }
  if (is_other(spec.sampler)) {
    return Error{ENOTSUP,
                 "sampler: " + spec.sampler +
                     " is not implemented; write its order to a file, one sample index per line, and use "
                     "sampler=list list=FILE"};
  }
  return bad_key("sampler", "'" + spec.sampler + "' is unknown; known are " + joined_names());
}

std::string canonical_sampler(const std::string& name) {
  const auto* const other = std::ranges::find(kOtherNames, name, &OtherName::name);
  return other == std::end(kOtherNames) ? name : std::string(other->canonical);
}

std::span<const std::string_view> sampler_keys(std::string_view sampler) {
  const auto* const family = std::ranges::find(kFamilies, sampler, &Family::name);
  if (family == std::end(kFamilies)) return {};
  return {std::begin(family->keys), std::ranges::find(family->keys, std::string_view())};
}

SamplerTraits sampler_traits(std::string_view sampler) {
  const auto* const family = std::ranges::find(kFamilies, sampler, &Family::name);
  return family == std::end(kFamilies) ? SamplerTraits() : family->traits;
}

std::vector<std::string> sampler_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

}  // namespace clairfs
