// One maker per sampler; make_sampler() has the table of their names.
//
// A maker checks the values of the keys that its sampler takes, and looks at no others. plan/README.md says
// how a sampler is added.
#pragma once

#include <memory>

#include "plan/samplers/sampler.h"

namespace clairfs {

using SamplerResult = Result<std::unique_ptr<Sampler>>;

SamplerResult make_torch_distributed(const SamplerSpec& spec);
SamplerResult make_torch_random(const SamplerSpec& spec);
SamplerResult make_torch_sequential(const SamplerSpec& spec);
SamplerResult make_torch_subset(const SamplerSpec& spec);
SamplerResult make_torch_weighted(const SamplerSpec& spec);
SamplerResult make_numpy_default_rng(const SamplerSpec& spec);
SamplerResult make_numpy_legacy(const SamplerSpec& spec);
SamplerResult make_python_random(const SamplerSpec& spec);
SamplerResult make_nopfs(const SamplerSpec& spec);
SamplerResult make_dali(const SamplerSpec& spec);
SamplerResult make_list(const SamplerSpec& spec);
SamplerResult make_strided(const SamplerSpec& spec);
SamplerResult make_accelerate(const SamplerSpec& spec);
SamplerResult make_lightning(const SamplerSpec& spec);
SamplerResult make_lightning_predict(const SamplerSpec& spec);
SamplerResult make_timm_ordered(const SamplerSpec& spec);
SamplerResult make_timm_repeat_augmentation(const SamplerSpec& spec);
SamplerResult make_torchvision_repeat_augmentation(const SamplerSpec& spec);
SamplerResult make_megatron_random(const SamplerSpec& spec);
SamplerResult make_megatron_sequential(const SamplerSpec& spec);
SamplerResult make_torchdata_random(const SamplerSpec& spec);
SamplerResult make_grain(const SamplerSpec& spec);
SamplerResult make_tf_shuffle(const SamplerSpec& spec);
SamplerResult make_tf_list_files(const SamplerSpec& spec);
SamplerResult make_webdataset(const SamplerSpec& spec);
SamplerResult make_streaming(const SamplerSpec& spec);
/// Of its shards, of which there are spec.n: what each node copies in the job's first epoch, and its order.
SamplerResult make_streaming_copies(const SamplerSpec& spec);

/// `inner` over a dataset that .shuffle(seed=spec.dataset_shuffle) of Hugging Face datasets has permuted.
SamplerResult make_dataset_shuffle(const SamplerSpec& spec, std::unique_ptr<Sampler> inner);

}  // namespace clairfs
