// Orders that explain much of what was opened, and that are not believed all the same, or no further than
// they explain it.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "plan/inference/search/order_search.h"
#include "plan/inference/seeds/usual_seeds.h"
#include "tests/support/catch.h"
#include "tests/support/seen_opens.h"

namespace clairfs::seen_opens {
namespace {

constexpr uint32_t kFewSamples = 600;
constexpr uint64_t kOutputsOfEach = 1 << 10;

/// What one thread opens.
void open_all(std::vector<SeenOpen>& opens, uint32_t n, const Samples& samples, uint32_t thread) {
  for (const uint32_t sample : samples) opens.push_back({file_of(n, sample), ThreadId(thread), Access::read});
}

/// The first 60 opens of a shuffle's reader. So many of them, the last ones, are strays from its end.
std::vector<SeenOpen> with_strays(const Samples& order, uint32_t strays) {
  std::vector<SeenOpen> opens;
  open_all(opens, kFewSamples, {order.begin(), order.begin() + 60 - strays}, 100);
  open_all(opens, kFewSamples, {order.end() - strays, order.end()}, 100);
  return opens;
}

}  // namespace

// The search takes what one search of a mount may take; with eight strays that is more than its share.
TEST_CASE(
    "a shuffle is believed with the share of certainty that a search has, and else once more was seen") {
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.random generator=default seed=42 draws=500"), 1);
  const Samples order = node_order(spec, kFewSamples, 0, 0);
  const auto is_within_share = [](const FoundOrder& found) {
    return found.log_chance + std::log(2 * kShares) < std::log(kMostWrong);
  };
  for (const uint32_t strays : {7, 8}) {
    OrderSearch search(
        dataset_of(kFewSamples), [] { return false; },
        {.all_seeds = false, .stream_outputs = kOutputsOfEach, .deep_outputs = 0, .when_idle = false},
        UINT64_MAX);
    search.allow(std::numeric_limits<double>::infinity());  // that as many orders are compared everywhere
    std::vector<SeenOpen> opens = with_strays(order, strays);
    const auto soon = search.find(opens, {}, std::nullopt);
    INFO(strays << " strays, " << search.orders() << " orders");
    CHECK(soon.has_value() == (strays == 7));
    if (soon) {
      CHECK(is_within_share(*soon));
      continue;
    }
    open_all(opens, kFewSamples, {order.begin() + 60 - strays, order.begin() + 240 - strays}, 100);
    const double before = search.orders();
    const auto found = search.find(opens, {}, std::nullopt);
    REQUIRE(found);
    CHECK(is_within_share(*found));
    CHECK(search.orders() <
          before + static_cast<double>(usual_seeds().size() * kOutputsOfEach));  // it was known
  }
}

// One reads files by number, the next one the same files as their names are sorted: 0, 1, 10, 100, 101, ...
TEST_CASE(
    "who goes by number after another reader does not repeat that one's list, and who repeats it does") {
  constexpr uint32_t kNamed = 1000;
  Samples by_name(kNamed);  // the file with that number in its name: samples are numbered by name
  std::iota(by_name.begin(), by_name.end(), 0);
  std::sort(by_name.begin(), by_name.end(),
            [](uint32_t a, uint32_t b) { return std::to_string(a) < std::to_string(b); });
  Samples in_turn(kNamed);
  for (uint32_t sample = 0; sample < kNamed; ++sample) in_turn[by_name[sample]] = sample;
  Samples by_folder;  // whose hundreds are folders that come in any order
  for (const uint32_t folder : {3, 0, 9, 1, 7, 2, 8, 5, 4, 6})
    for (uint32_t i = 0; i < 100; ++i) by_folder.push_back(100 * folder + i);
  Samples sorted(kNamed);
  std::iota(sorted.begin(), sorted.end(), 0);

  const auto sampler_of = [&](const Samples& first, const Samples& second) {
    std::vector<SeenOpen> opens;
    open_all(opens, kNamed, first, 100);
    open_all(opens, kNamed, {second.begin(), second.begin() + 60}, 200);
    OrderSearch search(
        dataset_of(kNamed), [] { return false; }, OrderSearch::Shuffles::none);
    const auto found =
        search.find(opens, {}, std::nullopt, OrderSearch::kEverybody, OrderSearch::Which::likely);
    return found ? found->plan.sampler : "";
  };
  CHECK(sampler_of(in_turn, sorted) == "torch.sequential");
  CHECK(sampler_of(in_turn, in_turn) == "list");
  CHECK(sampler_of(by_folder, by_folder) == "list");
}

// It goes on with the next folder, and by the time of the look it has begun with a shuffle. Many of its
// samples lie near by chance, and two that are opened in turn, 532 and 533, lie far ahead.
TEST_CASE("the window of an order has no room for all samples where its reader has begun with another one") {
  const auto shuffle = *resolve_plan(*parse_plan("sampler=numpy.default_rng seed=42"), 1);
  Samples samples(100);
  std::iota(samples.begin(), samples.end(), 100);
  for (const uint32_t sample : node_order(shuffle, kFewSamples, 0, 0)) {
    if (samples.size() < 146 && (sample < 100 || sample >= 200)) samples.push_back(sample);
  }
  std::vector<SeenOpen> opens;
  open_all(opens, kFewSamples, samples, 100);
  FoundOrder before;
  before.plan.sampler = "torch.sequential";
  OrderSearch search(
      dataset_of(kFewSamples), [] { return false; }, OrderSearch::Shuffles::none);
  const auto found = search.find(opens, {}, before);
  REQUIRE(found);
  CHECK(found->plan.sampler == "torch.sequential");
  CHECK(found->plan.workers == 0);
  CHECK(found->plan.batch == 1);
}

TEST_CASE("workers that have all of a small dataset in flight are found") {
  constexpr uint32_t kInFlight = 250;
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.distributed seed=42"), 1);
  const Samples order = node_order(spec, kInFlight, 0, 0);
  std::vector<SeenOpen> opens;  // of two workers in turn, the first batch of each
  for (uint32_t i = 0; i < 90; ++i)
    opens.push_back({file_of(kInFlight, order[i % 2 * 64 + i / 2]), ThreadId(100 + i % 2), Access::read});
  OrderSearch search(
      dataset_of(kInFlight), [] { return false; }, OrderSearch::Shuffles::none);
  search.allow(std::numeric_limits<double>::infinity());
  const auto found = search.find(opens, {}, std::nullopt);
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK(found->plan.batch == 64);
  CHECK(found->plan.workers == 2);
}

}  // namespace clairfs::seen_opens
