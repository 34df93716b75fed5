// Orders that somebody has reason to expect, and the search for them.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "plan/inference/search/order_search.h"
#include "plan/inference/watched/repeated_order.h"
#include "tests/support/catch.h"
#include "tests/support/seen_opens.h"

namespace clairfs::seen_opens {

TEST_CASE("a suggested order is found in its first epoch, in the one where it was left, and in the next") {
  std::mt19937 random(29);
  const Reader reader{600, {1, 8, 2}, 0.05};
  for (const char* text : {"sampler=torch.distributed seed=918273646",
                           "sampler=torch.random generator=default seed=72635441 draws=70000",
                           "sampler=numpy.default_rng seed=918273646"}) {
    const auto spec = *resolve_plan(*parse_plan(text), 1);
    PlanSpec left = *parse_plan(std::string("format=files world=4 ranks_per_node=4 ") + text);
    left.first_epoch = 5;
    for (const uint32_t epoch : {0, 5, 6}) {
      const auto opens = opens_of(reader, node_order(spec, reader.n, epoch, 0), 60, random);
      if (epoch == 0) CHECK(!watch(reader, opens));
      OrderSearch search(
          dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
      search.suggest({left});
      const auto found = search.find(opens, {}, std::nullopt);
      INFO(text << " " << epoch);
      REQUIRE(found);
      CHECK(found->plan.seed == spec.seed);
      CHECK(found->plan.world == 1);
      CHECK(found->plan.first_epoch == epoch);
      CHECK(found->plan.epochs == found->plan.first_epoch + 1);
      CHECK(found->description.empty() == (spec.generator.empty()));
      const auto next = opens_of(reader, node_order(spec, reader.n, epoch + 1, 0), 60, random);
      const auto on = search.follow_on(next, *found);
      REQUIRE(on);
      CHECK(on->plan.epochs == 0);
      CHECK(on->plan.first_epoch == epoch + 1);
      CHECK(on->description == found->description);
    }
  }
}

TEST_CASE("a job without set_epoch() that was left in a later epoch has the seed of that epoch") {
  std::mt19937 random(35);
  const Reader reader{600, {1, 8, 2}, 0.05};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.distributed seed=918273646"), 1);
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  search.suggest({*parse_plan("format=files first_epoch=5 seed=918273646")});
  const auto found = search.find(opens_of(reader, node_order(spec, reader.n, 5, 0), 60, random), {}, {});
  REQUIRE(found);
  const auto on = search.follow_on(opens_of(reader, node_order(spec, reader.n, 5, 0), 60, random), *found);
  REQUIRE(on);
  CHECK(on->plan.set_epoch == "never");
  CHECK(on->plan.seed == "918273651");
}

TEST_CASE("the shuffle of a single epoch that is suggested is found as that") {
  std::mt19937 random(30);
  const Reader reader{600, {1, 8, 2}, 0.05};
  const PlanSpec of_epoch = plan_of_epoch_seed(918273646, *parse_plan("format=files seed=0"));
  const auto spec = *resolve_plan(of_epoch, 1);
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  search.suggest({of_epoch});
  const auto found = search.find(opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random), {}, {});
  REQUIRE(found);
  CHECK(is_of_epoch_seed(found->plan));
  CHECK(found->description == "a shuffle with seed 918273646, of this epoch only");
}

TEST_CASE("a suggestion is a hypothesis among all that it was chosen from") {
  std::mt19937 random(31);
  const Reader reader{600, {1, 8, 2}, 0};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.distributed seed=918273646"), 1);
  const auto opens = opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random);
  const auto found_with = [&](const std::string& suggested, double orders) {
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
    search.suggest({*parse_plan(suggested), orders});
    const auto found = search.find(opens, {}, std::nullopt);
    CHECK(search.orders() >= orders);
    return found;
  };
  const auto alone = found_with("format=files seed=918273646", 0);
  const auto chosen = found_with("format=files seed=918273646", 1e9);
  REQUIRE(alone);
  REQUIRE(chosen);
  CHECK(chosen->log_chance > alone->log_chance + std::log(1e8));
  CHECK(!found_with("format=files seed=918273646", 1e300));
  CHECK(!found_with("format=files seed=918273600", 0));
  CHECK(!found_with("format=imagefolder seed=918273646", 0));  // numbered otherwise
  CHECK(!found_with("format=files root=other seed=918273646", 0));
}

TEST_CASE("what is suggested last is tried first, and old suggestions are forgotten") {
  std::mt19937 random(32);
  const Reader reader{600, {1, 8, 2}, 0};
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  constexpr uint64_t kFirst = 918273646;
  constexpr uint64_t kOthers = 2 * kFirst;  // a seed gives the same epoch 0 to both samplers
  for (uint64_t i = 0; i <= OrderSearch::kMostSuggestions / 2; ++i) {
    PlanSpec order = *parse_plan("format=files seed=0");
    order.seed = std::to_string(kFirst + i);
    search.suggest({order});
  }
  // The same in other epochs, and shuffles of single epochs, take no place of another.
  for (uint64_t i = 0; i < OrderSearch::kMostSuggestions; ++i) {
    PlanSpec order = *parse_plan("format=files seed=0");
    order.seed = std::to_string(kFirst + OrderSearch::kMostSuggestions / 2);
    order.first_epoch = i;
    search.suggest({order});
    search.suggest(
        {plan_of_epoch_seed(static_cast<uint32_t>(kOthers + i), *parse_plan("format=files seed=0"))});
  }
  for (const bool known : {false, true}) {
    const auto spec = *resolve_plan(*parse_plan("seed=" + std::to_string(kFirst + (known ? 1 : 0))), 1);
    const auto opens = opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random);
    CHECK(search.find(opens, {}, std::nullopt, known ? 2 : 1, OrderSearch::Which::likely).has_value() ==
          known);
  }
  // A list that lies in a file may be gone; who goes through the samples by number is looked for anyway.
  OrderSearch other(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  other.suggest({*parse_plan("format=files sampler=list list=/nowhere")});
  other.suggest({*parse_plan("format=files sampler=torch.sequential")});
  Samples order(reader.n);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  const double before = other.orders();
  CHECK(!other.find(opens_of(reader, order, 20, random), {}, std::nullopt, 1, OrderSearch::Which::likely));
  OrderSearch none(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  CHECK(!none.find(opens_of(reader, order, 20, random), {}, std::nullopt, 1, OrderSearch::Which::likely));
  CHECK(other.orders() - before == none.orders());
}

TEST_CASE("a list that was read is suggested, but not one that is kin to all that goes by number") {
  std::mt19937 random(36);
  const Reader reader{640, {1, 8, 2}, 0};
  const auto sampler_of = [&](const Samples& list, const Samples& order) {
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
    search.suggest({*parse_plan("format=files sampler=list list=" + list_in_place(list))});
    const auto found = search.find(opens_of(reader, order, 60, random), {}, std::nullopt);
    return found ? found->plan.sampler : "";
  };
  Samples by_number(reader.n);
  std::iota(by_number.begin(), by_number.end(), 0);
  Samples shuffled = by_number;
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  Samples in_blocks = by_number;  // the second eight of each sixteen come first
  for (uint32_t& sample : in_blocks) sample ^= 8;
  CHECK(sampler_of(shuffled, shuffled) == "list");
  CHECK(sampler_of(in_blocks, by_number) == "torch.sequential");
}

TEST_CASE("of suggested shuffles of single epochs the first ones are kept, and an earlier mount's give way") {
  std::mt19937 random(33);
  const Reader reader{600, {1, 8, 2}, 0};
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  constexpr uint32_t kFirst = 918273646;
  constexpr auto kKept = static_cast<uint32_t>(OrderSearch::kMostSuggestions / 2);
  const auto shuffle = [](uint32_t number) {
    return plan_of_epoch_seed(kFirst + number, *parse_plan("format=files seed=0"));
  };
  for (uint32_t i = 0; i < kKept; ++i) search.suggest({shuffle(100 + i), 0, true});
  for (uint32_t i = 0; i < 2 * kKept; ++i) search.suggest({shuffle(i)});
  uint32_t reader_number = 0;
  const auto is_known = [&](uint32_t number) {
    const auto spec = *resolve_plan(shuffle(number), 1);
    const auto opens = opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random);
    return search.find(opens, {}, std::nullopt, ++reader_number, OrderSearch::Which::likely).has_value();
  };
  CHECK(is_known(0));
  CHECK(is_known(kKept - 1));
  CHECK(!is_known(kKept));
  CHECK(!is_known(100));
}

TEST_CASE("what was suggested is tried again when more was seen, or suggested") {
  std::mt19937 random(34);
  const Reader reader{600, {1, 8, 2}, 0};
  const auto opens_of_seed = [&](const char* text, uint32_t count) {
    return opens_of(reader, node_order(*resolve_plan(*parse_plan(text), 1), reader.n, 0, 0), count, random);
  };
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
  const auto compared = [&](const std::vector<SeenOpen>& opens) {
    const double before = search.orders();
    (void)search.find(opens, {}, std::nullopt, 1, OrderSearch::Which::likely);
    return search.orders() - before;
  };
  search.suggest({*parse_plan("format=files seed=918273646")});
  const auto opens = opens_of_seed("seed=555555555", 60);
  const double with = compared(opens);
  const double without = compared(opens);
  CHECK(without < with);
  CHECK(compared(opens_of_seed("seed=555555555", 90)) == with);
  search.suggest({*parse_plan("format=files seed=555555555")});
  CHECK(search.find(opens, {}, std::nullopt, 1, OrderSearch::Which::likely));
}

}  // namespace clairfs::seen_opens
