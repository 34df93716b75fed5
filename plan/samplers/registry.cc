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
};

constexpr Family kFamilies[] = {
    {"torch.distributed", make_torch_distributed},
    {"torch.random", make_torch_random},
    {"torch.sequential", make_torch_sequential},
    {"torch.subset", make_torch_subset},
    {"torch.weighted", make_torch_weighted},
    {"numpy.default_rng", make_numpy_default_rng},
    {"numpy.legacy", make_numpy_legacy},
    {"python.random", make_python_random},
    {"nopfs", make_nopfs},
    {"dali", make_dali},
    {"list", make_list},
};

// Known by name (also as "name.anything") and not implemented.
constexpr std::string_view kOthers[] = {
    "grain",      "streaming",   "mosaicml", "tf",          "tf_shuffle",   "tensorflow", "torchdata",
    "accelerate", "lightning",   "timm",     "torchvision", "megatron",     "keras",      "webdataset",
    "fairseq",    "huggingface", "datasets", "hf",          "transformers", "deepspeed",  "ffcv",
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
    return family->make(spec);
  }
  if (is_other(spec.sampler)) {
    return Error{ENOTSUP,
                 "sampler: " + spec.sampler +
                     " is not implemented; write its order to a file, one sample index per line, and use "
                     "sampler=list list=FILE"};
  }
  return bad_key("sampler", "'" + spec.sampler + "' is unknown; known are " + joined_names());
}

std::vector<std::string> sampler_names() {
  std::vector<std::string> names;
  for (const Family& family : kFamilies) names.emplace_back(family.name);
  return names;
}

}  // namespace clairfs
