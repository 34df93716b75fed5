#include "tests/support/catch.h"
#include "tests/support/golden.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

size_t check_section(const std::string& section, LibraryVersion torchdata) {
  size_t checked = 0;
  for (const auto& test : golden::cases(section)) {
    INFO(test.at("id"));
    const golden::Json& params = test.at("params");
    SamplerSpec spec{.sampler = "torchdata.random",
                     .n = params.at("n"),
                     .batch = params.at("batch_size"),
                     .seed = params.at("seed"),
                     .workers = params.at("num_workers")};
    spec.args.persistent_workers = params.at("persistent_workers");
    spec.torchdata = torchdata;
    if (params.at("generator") == "default") spec.generator = TorchGeneratorUse::default_generator;
    const auto sampler = sampler_of(spec);
    const golden::Json& epochs = test.at("result").at("epochs");
    for (auto epoch = static_cast<uint32_t>(epochs.size()); epoch-- > 0;) {  // backwards, too
      CHECK(golden::same_sequence(epochs[epoch].at("delivered"), indices_of(*sampler, epoch)));
    }
    ++checked;
  }
  return checked;
}

}  // namespace

TEST_CASE("torchdata's StatefulDataLoader since 0.11") {
  CHECK(check_section("torchdata_stateful", {0, 11}) == 12);
  CHECK(check_section("torchdata_stateful", kNewestLibrary) == 12);
}

TEST_CASE("torchdata's StatefulDataLoader up to 0.10") {
  CHECK(check_section("torchdata_stateful_0_10", {0, 8}) == 12);
  CHECK(check_section("torchdata_stateful_0_10", {0, 10}) == 12);
}

TEST_CASE("a resumed StatefulDataLoader begins with the epoch of its state") {
  // The state in state_dict() is that of the generator right before the epoch's order: here a fresh seed 42.
  std::string blob;
  for (const auto& test : golden::cases("torch_state")) {
    if (test.at("params").at("seed") == "42" && test.at("params").at("draws") == 0) {
      blob = test.at("result").at("state_base64");
    }
  }
  SamplerSpec spec{
      .sampler = "torchdata.random", .n = 37, .args = {.state = blob}, .workers = 2, .first_epoch = 5};
  Mt19937 generator(42);
  const auto drawn = [&] {
    std::vector<uint32_t> order(37);
    torch_randperm(generator, order, kNewestTorch);
    return order;
  };
  const auto sampler = sampler_of(spec);
  CHECK(indices_of(*sampler, 5) == drawn());
  drawn();  // of the iterator that the workers' reset throws away
  generator.discard(kDrawsOfRandomInt64);
  CHECK(indices_of(*sampler, 6) == drawn());
  CHECK_FALSE(sampler->order(Epoch(4)));
}

TEST_CASE("torchdata draws replacements by 32") {
  SamplerSpec spec{.sampler = "torchdata.random", .n = 10, .seed = "1"};
  spec.replacement = true;
  spec.num_samples = 40;
  Mt19937 generator(1);
  std::vector<uint32_t> all;
  const auto draw = [&](int count) {
    for (int i = 0; i < count; ++i) all.push_back(static_cast<uint32_t>(torch_randint(generator, 10, false)));
  };
  draw(32);  // at once, then base_seed, then the next ones when they are due
  generator.discard(kDrawsOfRandomInt64);
  draw(32);
  all.resize(40);
  CHECK(indices_of(*sampler_of(spec), 0) == all);
}

TEST_CASE("torchdata: refusals") {
  CHECK(refusal_of({.sampler = "torchdata.random", .n = 0, .seed = "1"}).starts_with("n:"));
  CHECK(refusal_of({.sampler = "torchdata.random", .n = 5}).starts_with("seed: missing"));
  CHECK(refusal_of({.sampler = "torchdata.random", .n = 5, .seed = "1", .torchdata = {0, 7}})
            .starts_with("torchdata:"));
}
