#include <algorithm>
#include <cerrno>
#include <string_view>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

struct Family {
  std::string_view name;
  SamplerResult (*make)(const SamplerSpec&);
  SamplerTraits traits = {};
};

constexpr SamplerTraits kDivides{.divides = true};
constexpr SamplerTraits kDividesUnseeded{.divides = true, .seeded = false};
constexpr SamplerTraits kOwnBatches{.divides = true, .in_loader = false};
constexpr SamplerTraits kOwnBatchesUnseeded{.divides = true, .seeded = false, .in_loader = false};

constexpr Family kFamilies[] = {
    {"torch.distributed", make_torch_distributed, kDivides},
    {"torch.random", make_torch_random},
    {"torch.sequential", make_torch_sequential, {.seeded = false}},
    {"torch.subset", make_torch_subset},
    {"torch.weighted", make_torch_weighted},
    {"numpy.default_rng", make_numpy_default_rng},
    {"numpy.legacy", make_numpy_legacy},
    {"python.random", make_python_random},
    {"nopfs", make_nopfs, kOwnBatches},
    {"dali", make_dali, kOwnBatchesUnseeded},
    {"list", make_list, kDividesUnseeded},
    {"strided", make_strided, kOwnBatchesUnseeded},
    {"accelerate", make_accelerate, kOwnBatches},
    {"lightning", make_lightning, kDividesUnseeded},
    {"lightning.predict", make_lightning_predict, kDividesUnseeded},
    {"timm.ordered", make_timm_ordered, kDividesUnseeded},
    {"timm.repeataug", make_timm_repeat_augmentation, kDividesUnseeded},
    {"torchvision.ra", make_torchvision_repeat_augmentation, kDividesUnseeded},
    {"megatron.random", make_megatron_random, kOwnBatchesUnseeded},
    {"megatron.sequential", make_megatron_sequential, kOwnBatchesUnseeded},
    {"torchdata.random", make_torchdata_random},
    {"grain", make_grain, kOwnBatches},
    {"tf.shuffle", make_tf_shuffle, kOwnBatches},
    {"tf.list_files", make_tf_list_files, kOwnBatches},
    {"webdataset", make_webdataset, kOwnBatchesUnseeded},
    {"streaming", make_streaming, kDividesUnseeded},
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
    {"torch.utils.data.distributedsampler", "torch.distributed"},
    {"torch.utils.data.distributed.distributedsampler", "torch.distributed"},
    {"statefuldistributedsampler", "torch.distributed"},
    {"torchdata.distributed", "torch.distributed"},
    {"randomsampler", "torch.random"},
    {"torch.utils.data.randomsampler", "torch.random"},
    {"sequentialsampler", "torch.sequential"},
    {"torch.utils.data.sequentialsampler", "torch.sequential"},
    {"subsetrandomsampler", "torch.subset"},
    {"torch.utils.data.subsetrandomsampler", "torch.subset"},
    {"weightedrandomsampler", "torch.weighted"},
    {"torch.utils.data.weightedrandomsampler", "torch.weighted"},
    {"caffe", "strided"},
    {"lmdbio", "strided"},
    {"seedablerandomsampler", "accelerate"},
    {"batchsamplershard", "accelerate"},
    {"transformers", "accelerate"},
    {"transformers.trainer", "accelerate"},
    {"trainer", "accelerate"},
    {"pytorch_lightning", "lightning"},
    {"lightning.pytorch", "lightning"},
    {"unrepeateddistributedsampler", "lightning.predict"},
    {"ordereddistributedsampler", "timm.ordered"},
    {"timm.ordereddistributedsampler", "timm.ordered"},
    {"repeataugsampler", "timm.repeataug"},
    {"timm.repeataugsampler", "timm.repeataug"},
    {"torchvision.rasampler", "torchvision.ra"},
    {"megatron", "megatron.sequential"},
    {"megatronpretrainingsampler", "megatron.sequential"},
    {"megatronpretrainingrandomsampler", "megatron.random"},
    {"torchdata", "torchdata.random"},
    {"statefuldataloader", "torchdata.random"},
    {"torchdata.statefuldataloader", "torchdata.random"},
    {"indexsampler", "grain"},
    {"grain.indexsampler", "grain"},
    {"grain.python.indexsampler", "grain"},
    {"tf_shuffle", "tf.shuffle"},
    {"tf.data", "tf.shuffle"},
    {"tf.data.dataset.shuffle", "tf.shuffle"},
    {"tf.data.dataset.list_files", "tf.list_files"},
    {"wds", "webdataset"},
    {"wds.webdataset", "webdataset"},
    {"mosaicml", "streaming"},
    {"mosaicml.streaming", "streaming"},
    {"streamingdataset", "streaming"},
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
