#include <cmath>
#include <limits>

#include "plan/samplers/torch_loader.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

SamplerSpec subset_spec(const golden::Json& params) {
  SamplerSpec spec{.sampler = "torch.subset", .n = 100003, .seed = params.at("seed")};
  std::vector<uint32_t> indices(params.at("k").get<size_t>());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<uint32_t>((i * 7919 + 13) % 100003);
  spec.lists = make_index_lists({indices}, spec.n).value();
  return spec;
}

SamplerSpec weighted_spec(const golden::Json& params) {
  SamplerSpec spec{.sampler = "torch.weighted", .seed = params.at("seed")};
  for (const auto& weight : params.at("weights_hex"))
    spec.weights.push_back(std::stod(weight.get<std::string>()));
  spec.n = spec.weights.size();
  spec.num_samples = params.at("num_samples").get<uint64_t>();
  return spec;
}

}  // namespace

TEST_CASE("SubsetRandomSampler and WeightedRandomSampler") {
  size_t subsets = 0;
  for (const auto& test : golden::cases("torch_subset_weighted")) {
    const golden::Json& params = test.at("params");
    INFO(test.at("id"));
    const bool subset = params.at("kind") == "subset";
    SamplerSpec spec = subset ? subset_spec(params) : weighted_spec(params);
    // The vectors come from bare samplers, which draw alike from either generator.
    spec.generator = TorchGeneratorUse::sampler;
    const auto sampler = sampler_of(spec);
    const golden::Json& epochs = test.at("result").at("epochs");
    for (uint32_t epoch = 0; epoch < epochs.size(); ++epoch) {
      CHECK(golden::same_sequence(epochs[epoch], indices_of(*sampler, epoch)));
    }
    const auto jumping = sampler_of(spec);
    const auto last = static_cast<uint32_t>(epochs.size() - 1);
    CHECK(golden::same_sequence(epochs[last], indices_of(*jumping, last)));
    subsets += subset;
  }
  CHECK(subsets == 30);
}

TEST_CASE("a shared or default generator also gives the loader's base_seed") {
  SamplerSpec spec = subset_spec({{"seed", "42"}, {"k", 20}});
  std::vector<std::vector<uint32_t>> first;
  for (const auto use :
       {TorchGeneratorUse::sampler, TorchGeneratorUse::loader, TorchGeneratorUse::default_generator}) {
    spec.generator = use;
    first.push_back(indices_of(*sampler_of(spec), 0));
  }
  CHECK(first[0] != first[1]);
  CHECK(first[1] == first[2]);
}

TEST_CASE("subsets need one list") {
  CHECK(refusal_of({.sampler = "torch.subset", .n = 5, .seed = "1"}).starts_with("list:"));
  SamplerSpec two{.sampler = "torch.subset", .n = 5, .seed = "1"};
  two.lists = make_index_lists({{1}, {2}}, 5).value();
  CHECK(refusal_of(two).starts_with("list:"));
}

TEST_CASE("weighted draws that no model can predict are refused with the reason") {
  SamplerSpec spec{.sampler = "torch.weighted", .n = 3, .seed = "1", .weights = {1, 2, 3}};
  CHECK(make_sampler(spec));
  spec.replacement = false;
  CHECK(refusal_of(spec, ENOTSUP).find("cannot be predicted") != std::string::npos);
  spec.replacement = true;
  spec.num_samples = 1;
  CHECK(refusal_of(spec, ENOTSUP).starts_with("num_samples:"));
}

TEST_CASE("weights that are no weights are refused") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& weights :
       {std::vector<double>{}, {1, -1}, {0, 0}, {infinity}, {std::nan("")}, {1e308, 1e308}, {1, 1, 1, 1}}) {
    CHECK(refusal_of({.sampler = "torch.weighted", .n = 3, .seed = "1", .weights = weights})
              .starts_with("weights:"));
  }
}
