#include "plan/inference/seeds/default_generator.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "plan/random/torch_random.h"
#include "plan/samplers/sampler.h"
#include "plan/spec/sampler_keys.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

// Outputs of torch.manual_seed(value)'s stream.
std::vector<uint32_t> stream_outputs(uint64_t value, std::vector<uint64_t> places) {
  std::vector<uint32_t> found;
  for (const uint64_t place : places) {
    Mt19937 generator(static_cast<uint32_t>(value));
    generator.discard(place);
    found.push_back(generator.next32());
  }
  return found;
}

const GeneratorSearchOptions kShort{.outputs = 1 << 13, .notable_outputs = 1 << 20, .stop = {}};

std::vector<GeneratorMatch> find_stream(std::vector<uint32_t> seeds,
                                        const GeneratorSearchOptions& options = kShort,
                                        std::vector<uint64_t> likely = {}) {
  return find_default_generator({std::move(seeds), std::move(likely)}, options).value();
}

std::vector<uint32_t> golden_values(const golden::Json& sequence) {
  std::vector<uint32_t> values;
  for (const auto& value : sequence.at("values"))
    values.push_back(static_cast<uint32_t>(golden::integer(value)));
  return values;
}

std::vector<uint32_t> epoch_of(const PlanSpec& plan, uint32_t n, uint32_t epoch) {
  const PlanSpec resolved = resolve_plan(plan, 1).value();
  REQUIRE(validate_plan(resolved));
  const std::unique_ptr<Sampler> sampler = std::move(make_sampler(sampler_spec(resolved, n)).value());
  const IndexOrder order = sampler->order(Epoch(epoch)).value();
  const RankOrder rank(order, sampler->slice(Epoch(epoch), TrainingRank(0)));
  std::vector<uint32_t> indices;
  for (uint64_t i = 0; i < rank.size(); ++i) indices.push_back(rank[i]);
  return indices;
}

}  // namespace

TEST_CASE("what the real DataLoader draws from the default generator is found and foretold") {
  size_t persistent = 0;
  size_t usual = 0;
  for (const auto& test : golden::cases("torch_dataloader")) {
    const auto& params = test.at("params");
    const auto& epochs = test.at("result").at("epochs");
    if (params.at("generator") != "default" || params.at("sampler") != "shuffle=True" || epochs.size() < 3)
      continue;
    if (!params.at("stop_after_batches_in_epoch0").is_null()) continue;
    INFO(test.at("id"));
    const auto n = params.at("n").get<uint32_t>();
    const uint64_t value = std::stoull(params.at("seed").get<std::string>());
    const bool lives_on = params.at("persistent_workers").get<bool>();
    const uint32_t stride = lives_on ? 2 : 4;
    const auto seeds = stream_outputs(value, {3, 3 + stride});

    const std::vector<GeneratorMatch> found = find_stream(seeds);
    REQUIRE(found.size() == 1);
    CHECK(found[0].certain());
    CHECK(found[0].value == value);
    CHECK(found[0].output == 3);
    CHECK(found[0].stride == stride);

    PlanSpec dataset;
    dataset.batch = params.at("batch_size").get<uint64_t>();
    if (params.at("drop_last").get<bool>()) dataset.drop_last = "loader";
    const PlanSpec plan = plan_of_generator(found[0], dataset).value();
    for (uint32_t epoch = 0; epoch < epochs.size(); ++epoch)
      CHECK(epoch_of(plan, n, epoch) == golden_values(epochs[epoch].at("delivered")));
    const PlanSpec one = plan_of_epoch_seed(seeds[0], dataset);
    CHECK(epoch_of(one, n, 0) == golden_values(epochs[0].at("delivered")));
    CHECK(parse_plan(format_plan(one)).value() == one);
    (lives_on ? persistent : usual) += 1;
  }
  CHECK(persistent > 0);
  CHECK(usual > 3);
}

TEST_CASE("the stream is found after what a model drew") {
  for (const uint64_t value : {0, 1234, 4095, 3407}) {
    const std::vector<GeneratorMatch> found = find_stream(stream_outputs(value, {3739, 3743}));
    INFO(value);
    REQUIRE(found.size() == 1);
    CHECK(found[0].value == value);
    CHECK(found[0].output == 3739);
    CHECK(found[0].stride == 4);
    CHECK(describe(found[0]) == "torch.manual_seed(" + std::to_string(value) + ") after 3736 draws");
  }
  // Of what people like, much further.
  const std::vector<GeneratorMatch> large = find_stream(stream_outputs(42, {1'000'000, 1'000'002}));
  REQUIRE(large.size() == 1);
  CHECK(large[0].output == 1'000'000);
  CHECK(large[0].stride == 2);
  CHECK(find_stream(stream_outputs(43, {1'000'000, 1'000'002})).empty());
  CHECK(find_stream(stream_outputs(99'999, {1000, 1004})).empty());
  REQUIRE(find_stream(stream_outputs(99'999, {1000, 1004}), kShort, {99'999}).size() == 1);
}

TEST_CASE("one epoch's seed makes suspects, which the next one's confirms") {
  const std::vector<GeneratorMatch> suspects = find_stream(stream_outputs(7, {5000}));
  REQUIRE(!suspects.empty());
  const auto same = std::find_if(suspects.begin(), suspects.end(),
                                 [](const GeneratorMatch& match) { return match.value == 7; });
  REQUIRE(same != suspects.end());
  CHECK(same->output == 5000);
  CHECK(same->stride == 0);
  CHECK(!same->certain());
  CHECK(!plan_of_generator(*same, {}));
  const auto strides = likely_strides();
  CHECK(strides[0] == 4);
  CHECK(strides[1] == 2);
  const auto next = narrow(suspects, 1, stream_outputs(7, {5004})[0]);
  REQUIRE(next.size() == 1);
  CHECK(next[0] == find_stream(stream_outputs(7, {5000, 5004}))[0]);
  CHECK(next[0].certain());
  CHECK(narrow(next, 2, stream_outputs(7, {5008})[0]).size() == 1);
  CHECK(narrow(next, 2, stream_outputs(7, {5009})[0]).empty());
  CHECK(narrow(suspects, 1, 12345).empty());
  CHECK(later_seeds(*same, 6, 3) == stream_outputs(7, {5006, 5012, 5018}));
}

TEST_CASE("what others draw in each epoch is part of the plan") {
  const auto found = find_stream(stream_outputs(0, {100, 106, 112}));
  REQUIRE(found.size() == 1);
  CHECK(found[0].certain());
  const PlanSpec plan = plan_of_generator(found[0], {}).value();
  CHECK(plan.other_draws == 2);
  CHECK(plan.draws == 97);
  CHECK(!plan.persistent_workers);
  CHECK(describe(found[0]) == "torch.manual_seed(0) after 97 draws, and 2 in each epoch");
  for (uint32_t epoch = 0; epoch < 3; ++epoch)
    CHECK(epoch_of(plan, 500, epoch) ==
          epoch_of(plan_of_epoch_seed(stream_outputs(0, {100 + 6 * epoch})[0], {}), 500, 0));
  // Three, of which the sampler takes two: nothing but persistent workers can be.
  const PlanSpec odd = plan_of_generator({.value = 0, .output = 100, .stride = 3}, {}).value();
  CHECK(epoch_of(odd, 500, 1) == epoch_of(plan_of_epoch_seed(stream_outputs(0, {103})[0], {}), 500, 0));
}

TEST_CASE("certainty needs as many epochs as the search was long") {
  // Two epochs at an unusual distance: any of 2^16 would have done.
  const GeneratorSearchOptions longer{.outputs = 1 << 15, .notable_outputs = 1 << 15, .stop = {}};
  const auto two = find_stream(stream_outputs(0, {100, 1000}), longer);
  REQUIRE(two.size() == 1);
  CHECK(two[0].stride == 900);
  CHECK(!two[0].certain());
  const auto three = find_stream(stream_outputs(0, {100, 1000, 1900}), longer);
  REQUIRE(three.size() == 1);
  CHECK(three[0].certain());
  CHECK(find_stream(stream_outputs(0, {100, 1000, 1901}), longer).empty());
  // 2^15 outputs of 4,096 streams and some more, of which one in 2^32 matches.
  const auto one = find_stream(stream_outputs(0, {100}), longer);
  CHECK(one[0].chance == Approx(0.0317).epsilon(0.1));
}

TEST_CASE("a stream that DataLoader's seeds do not begin in makes no plan") {
  const auto found = find_stream(stream_outputs(0, {1, 3}));
  REQUIRE(found.size() == 1);
  const auto plan = plan_of_generator(found[0], {});
  REQUIRE(!plan);
  CHECK(plan.error().code == EINVAL);
}

TEST_CASE("the search for a stream ends when it is told, and needs a seed") {
  GeneratorSearchOptions stopped = kShort;
  stopped.stop = [] { return true; };
  CHECK(find_stream(stream_outputs(0, {3, 7}), stopped).empty());
  CHECK(find_default_generator({}).error().code == EINVAL);
}
