#include "plan/inference/search/order_search.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <random>

#include "plan/inference/seeds/default_generator.h"
#include "plan/inference/seeds/usual_seeds.h"
#include "tests/support/catch.h"
#include "tests/support/made_up_folders.h"
#include "tests/support/reader_model.h"
#include "tests/support/seen_opens.h"

namespace clairfs::seen_opens {
namespace {

/// Whether two orders are the same but for how ranks take turns, and for what pads the end.
bool same_order(const Samples& a, const Samples& b, uint32_t turns) {
  if (a.size() > b.size() + turns || b.size() > a.size() + turns) return false;
  std::map<uint32_t, uint32_t> place;
  for (uint32_t i = 0; i < b.size(); ++i) place.emplace(b[i], i);
  size_t far = 0;
  for (uint32_t i = 0; i < a.size(); ++i) {
    const auto at = place.find(a[i]);
    if (at == place.end() || std::max(i, at->second) - std::min(i, at->second) > turns) ++far;
  }
  return far <= turns;
}

/// Torch's samplers with those seeds, and of shuffles only what usual values give with so many outputs.
ShuffleSearch::Options seeds_below(uint64_t plausible_seeds, uint64_t stream_outputs = 0) {
  return {.all_seeds = false,
          .plausible_seeds = plausible_seeds,
          .stream_outputs = stream_outputs,
          .deep_outputs = 0,
          .when_idle = false};
}

template <class T>
T one_of(std::mt19937& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<std::ptrdiff_t>(random() % values.size()));
}

struct Case {
  std::string text;
  Reader reader;
  uint32_t node = 0;
};

/// What a script may do.
Case random_case(std::mt19937& random) {
  Case made;
  Reader& reader = made.reader;
  reader.n = one_of<uint32_t>(random, {100, 250, 600});
  reader.strays = 0.05;
  reader.loader.batch = one_of<uint32_t>(random, {1, 4, 8, 16, 32, 64});
  reader.loader.workers = one_of<uint32_t>(random, {0, 1, 2, 4, 8});
  const auto* const sampler = one_of<const char*>(
      random, {"torch.sequential", "torch.distributed", "torch.distributed shuffle=false",
               "torch.random generator=loader", "torch.random generator=sampler", "numpy.default_rng",
               "numpy.legacy", "python.random", "nopfs", "dali random_shuffle=true"});
  const std::string name = sampler;
  const bool divides = name.starts_with("torch.distributed");
  const bool seeded = name != "torch.sequential" && name.find("shuffle=") == std::string::npos;
  made.text = "sampler=" + name;
  if (seeded)
    made.text += " seed=" + std::to_string(one_of<uint32_t>(
                                random, {0, 1, 42, 1234, 3407, static_cast<uint32_t>(random() % 200)}));
  uint32_t world = 1;
  if (divides) {
    world = one_of<uint32_t>(random, {1, 2, 3, 4, 8});
    reader.loader.ranks = one_of<uint32_t>(random, {1, world});
    made.node = static_cast<uint32_t>(random() % (world / reader.loader.ranks));
    made.text += " world=" + std::to_string(world) + " ranks_per_node=" + std::to_string(reader.loader.ranks);
  }
  if (name != "nopfs") made.text += " batch=" + std::to_string(reader.loader.batch);
  return made;
}

constexpr int kParts = 5;

// Of n samples fewer than are in flight at a time tell nothing; those who read them open most of them at
// once.
// Each part makes all cases, so that they are the same in all parts, and looks for a fifth of them.
// CLAIRFS_ORDERS=1000 takes that many, as for the real libraries'
// (tests/plan/inference/test_orders_found.py).
void check_readers_at_random(int part) {
  const char* const wanted = std::getenv("CLAIRFS_ORDERS");
  const int rounds = wanted != nullptr ? std::atoi(wanted) : 250;
  std::mt19937 random(20);
  int possible_of_all = 0;
  int possible = 0;
  int found_possible = 0;
  for (int round = 0; round < rounds; ++round) {
    const Case made = random_case(random);
    const auto& [n, loader, strays] = made.reader;
    const PlanSpec truth = *resolve_plan(*parse_plan(made.text), 1);
    const Samples order = node_order(truth, n, 0, made.node);
    const size_t most = std::min<size_t>(order.size(), 180);
    const auto opens = opens_of(made.reader, order, most, random);
    const uint64_t in_flight = uint64_t{(2 * loader.workers + 1) * loader.batch} * loader.ranks;
    const bool told = loader.batch > 1 || loader.workers < 2;  // else no thread reads on
    const bool is_possible = 4 * in_flight <= order.size() && order.size() >= 100 && told;
    possible_of_all += is_possible ? 1 : 0;
    if (round % kParts != part) continue;
    possible += is_possible ? 1 : 0;
    const auto found = watch(made.reader, opens);
    if (!found) continue;
    found_possible += is_possible ? 1 : 0;
    INFO(made.text << " n=" << n << " workers=" << loader.workers << " found " << format_plan(found->plan)
                   << " node " << found->node << " after " << found->opens);
    PlanSpec plan = found->plan;
    plan.start_sample = 0;
    const auto turns = static_cast<uint32_t>(2 * loader.ranks * loader.batch + 8);
    REQUIRE(same_order(node_order(plan, n, 0, found->node), order, turns));
  }
  INFO(found_possible << " of " << possible << " possible ones");
  CHECK(found_possible >= possible * 99 / 100);
  CHECK(possible_of_all > rounds * 3 / 10);
}

}  // namespace

TEST_CASE("readers at random: none is taken for another, nearly all are found where that is possible") {
  check_readers_at_random(0);
}
TEST_CASE("readers at random, the second fifth") {
  check_readers_at_random(1);
}
TEST_CASE("readers at random, the third fifth") {
  check_readers_at_random(2);
}
TEST_CASE("readers at random, the fourth fifth") {
  check_readers_at_random(3);
}
TEST_CASE("readers at random, the last fifth") {
  check_readers_at_random(4);
}

TEST_CASE("an order that nobody foretells is never taken for one") {
  std::mt19937 random(21);
  for (int round = 0; round < 12; ++round) {
    Reader reader{
        one_of<uint32_t>(random, {60, 200, 500}), {1, 8, one_of<uint32_t>(random, {0, 2, 4})}, 0.05};
    Samples order(reader.n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    CHECK(!watch(reader, opens_of(reader, order, 300, random)));
  }
}

TEST_CASE("a large dataset's order is found after some tens of opens") {
  std::mt19937 random(22);
  const Reader reader{60000, {1, 64, 4}, 0.05};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.distributed seed=42"), 1);
  const auto opens = opens_of(reader, node_order(spec, reader.n, 0, 0), 200, random);
  const auto found = watch(reader, opens);
  REQUIRE(found);
  CHECK(found->opens <= 64);
  CHECK(found->plan.seed == "42");
  CHECK(found->plan.workers == 4);
  CHECK(found->plan.batch == 64);
  CHECK(found->plan.epochs == 1);
}

TEST_CASE("the environment tells the size of the job and the seed") {
  std::mt19937 random(23);
  const Reader reader{3000, {1, 8, 2}, 0.05};
  const auto spec =
      *resolve_plan(*parse_plan("sampler=torch.distributed seed=987654 world=6 ranks_per_node=1"), 1);
  const auto opens = opens_of(reader, node_order(spec, reader.n, 0, 4), 300, random);
  CHECK(!watch(reader, opens));
  const auto found = watch(reader, opens, {6, {987654}});
  REQUIRE(found);
  CHECK(found->plan.seed == "987654");
  CHECK(found->plan.world == 6);
  CHECK(found->node == 4);
}

TEST_CASE("all ranks of a job are here where its environment says how many there are") {
  std::mt19937 random(29);
  const auto spec = *resolve_plan(*parse_plan("seed=42 world=2 ranks_per_node=2 batch=8 workers=2"), 1);
  const Reader both{3000, {2, 8, 2}, 0.05};
  const auto opens = opens_of(both, node_order(spec, both.n, 0, 0), 300, random);
  const auto found = watch(both, opens, {2, {}});
  REQUIRE(found);
  INFO(format_plan(found->plan));
  CHECK(found->plan.world == 2);
  CHECK(found->plan.ranks_per_node == 2);
  CHECK(found->node == 0);
  CHECK(found->plan.batch == 8);
  CHECK(found->plan.workers == 2);
  // One of them reads all samples by itself.
  const Reader alone{3000, {1, 8, 2}, 0.05};
  const auto all =
      opens_of(alone, node_order(*resolve_plan(*parse_plan("seed=42"), 1), alone.n, 0, 0), 300, random);
  const auto whole = watch(alone, all, {2, {}});
  REQUIRE(whole);
  CHECK(whole->plan.world == 1);
}

TEST_CASE("while the ranks of an order that is certain are counted no other order is compared") {
  std::mt19937 random(36);
  const Reader both{3000, {2, 8, 2}, 0};
  const auto opens_of_seed = [&](const char* text) {
    return opens_of(both, node_order(*resolve_plan(*parse_plan(text), 1), both.n, 0, 0), 200, random);
  };
  const auto opens = opens_of_seed("seed=42 world=2 ranks_per_node=2 batch=8 workers=2");
  for (const bool goes_on : {true, false}) {
    OrderSearch search(
        dataset_of(both.n), [] { return false; }, seeds_below(1'000'000), UINT64_MAX);
    const ReaderFacts facts{2, {}};
    REQUIRE(!search.find(std::span(opens).first(60), facts, std::nullopt));
    CHECK(search.orders() < 100);  // of the first usual seed
    const double before = search.orders();
    REQUIRE(!search.find(std::span(opens).first(80), facts, std::nullopt));
    CHECK(search.orders() == before + 1);
    const auto other = opens_of_seed("seed=1234 world=2 ranks_per_node=2 batch=8 workers=2");
    const auto found = search.find(goes_on ? opens : other, facts, std::nullopt);
    REQUIRE(found);
    CHECK(found->plan.seed == (goes_on ? "42" : "1234"));
    CHECK(found->plan.ranks_per_node == 2);
    CHECK((search.orders() == before + 2) == goes_on);
  }
}

TEST_CASE("the order of so many ranks is found that no look has enough opens of each") {
  std::mt19937 random(37);
  const Reader all{20'000, {64, 8, 0}, 0};
  const auto plan = *resolve_plan(*parse_plan("seed=42 world=64 ranks_per_node=64 batch=8"), 1);
  const auto opens = opens_of(all, node_order(plan, all.n, 0, 0), OrderSearch::kMostOpens, random);
  OrderSearch search(
      dataset_of(all.n), [] { return false; }, OrderSearch::Shuffles::none);
  const auto found = search.find(opens, {64, {}}, std::nullopt);
  REQUIRE(found);
  CHECK(found->plan.seed == "42");
  CHECK(found->plan.ranks_per_node == 64);
}

// A few batches of a validation set before the training begins, as some trainers read them.
TEST_CASE(
    "an order whose ranks could not be counted does not keep its reader's next folder from being found") {
  constexpr uint32_t kFirst = 1000;
  constexpr uint32_t kNext = 3000;
  const DatasetSource source = made_up_folders(kNext, kFirst);
  std::vector<SeenOpen> opens;
  const auto read = [&](const char* folder, const Samples& order, uint32_t count, uint32_t threads) {
    const uint32_t first = source.catalog->children(*source.catalog->find(folder)).first.value;
    for (uint32_t i = 0; i < count; ++i)
      opens.push_back({FileId(first + order[i]), ThreadId(100 + i % threads), Access::read});
  };
  OrderSearch search(
      source, [] { return false; }, OrderSearch::Shuffles::none);
  read("val", node_order(*resolve_plan(*parse_plan("seed=42"), 1), kFirst, 0, 0), 60, 2);
  REQUIRE(!search.find(opens, {2, {}}, std::nullopt));
  REQUIRE(search.orders() < 100);  // it is awaited
  read("train", node_order(*resolve_plan(*parse_plan("seed=1234"), 1), kNext, 0, 0), 500, 1);
  const auto found = search.find(opens, {}, std::nullopt);
  REQUIRE(found);
  CHECK(found->plan.root == "train");
  CHECK(found->plan.seed == "1234");
}

TEST_CASE("the next epoch says how an order goes on") {
  for (const char* text :
       {"sampler=torch.distributed seed=1", "sampler=torch.distributed seed=1 set_epoch=never",
        "sampler=torch.random generator=sampler seed=1",
        "sampler=torch.random seed=1 persistent_workers=true", "sampler=numpy.default_rng seed=1",
        "sampler=numpy.default_rng seed=1 method=shuffle", "sampler=python.random seed=1 reseed=epoch",
        "sampler=nopfs seed=1", "sampler=dali random_shuffle=true", "sampler=dali shuffle_after_epoch=true",
        "sampler=torch.sequential"}) {
    std::mt19937 random(24);
    const Reader reader{800, {1, 8, 2}, 0.05};
    const auto spec = *resolve_plan(*parse_plan(text), 1);
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
    const auto first = opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random);
    const auto found = search.find(first, {}, std::nullopt);
    INFO(text);
    REQUIRE(found);
    CHECK(found->plan.epochs == 1);
    const Samples next = node_order(spec, reader.n, 1, 0);
    const auto on = search.follow_on(opens_of(reader, next, 60, random), *found);
    REQUIRE(on);
    CHECK(on->plan.epochs == 0);
    CHECK(on->plan.first_epoch == 1);
    CHECK(same_order(node_order(on->plan, reader.n, 1, 0), next, 0));
    CHECK(same_order(node_order(on->plan, reader.n, 3, 0), node_order(spec, reader.n, 3, 0), 0));
    Samples other(reader.n);
    std::iota(other.begin(), other.end(), 0);
    std::shuffle(other.begin(), other.end(), random);
    CHECK(!search.follow_on(opens_of(reader, other, 60, random), *found));
  }
}

TEST_CASE(
    "the workers that an epoch has shown are those of the next, which is followed before they show again") {
  for (const char* text : {"sampler=torch.distributed seed=1", "sampler=torch.sequential"}) {
    std::mt19937 random(30);
    const Reader reader{800, {1, 8, 2}, 0};
    const auto spec = *resolve_plan(*parse_plan(text), 1);
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
    const auto found =
        search.find(opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random), {}, std::nullopt);
    REQUIRE(found);
    const auto next = opens_of(reader, node_order(spec, reader.n, 1, 0), 27, random);
    const auto on = search.follow_on(next, *found);
    INFO(text);
    REQUIRE(on);
    CHECK(on->plan.epochs == 0);
    CHECK(on->plan.batch == 8);
    CHECK(on->plan.workers == 2);
  }
}

// Its seed is certain before its workers are: so few opens are not asked for it.
TEST_CASE("an epoch of the default generator that was looked at too early foretells the later ones") {
  std::mt19937 random(27);
  const Reader reader{kShuffled, {1, 16, 2}, 0};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.random generator=default seed=42 draws=500"), 1);
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::usual, false);
  std::optional<FoundOrder> found;
  for (const uint32_t epoch : {0, 1}) {
    search.begin();
    const auto opens = opens_of(reader, node_order(spec, reader.n, epoch, 0), 60, random);
    for (const size_t seen : {12, 18, 27, 40, 60}) {
      auto now = search.find(std::span(opens).first(seen), {}, found);
      INFO(epoch << " " << seen);
      CHECK(now.has_value() == (seen == 60 || epoch == 1));  // the loader is known by then
      if (now) found = now;
    }
    REQUIRE(found);
    CHECK(found->plan.first_epoch == epoch);
    CHECK(found->plan.epochs == (epoch == 0 ? 1 : 0));
  }
  CHECK(found->plan.seed == "42");
  CHECK(found->plan.draws == 500);
}

TEST_CASE("a shuffle that was found for a program is followed on for everybody, and the other way round") {
  std::mt19937 random(29);
  const Reader reader{kShuffled, {1, 16, 2}, 0};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.random generator=default seed=42 draws=500"), 1);
  for (const auto& [first, second] :
       {std::pair(7U, OrderSearch::kEverybody), {OrderSearch::kEverybody, 7U}}) {
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::usual, false);
    std::optional<FoundOrder> found;
    for (const uint32_t epoch : {0, 1}) {
      const auto opens = opens_of(reader, node_order(spec, reader.n, epoch, 0), 60, random);
      search.begin();
      found = search.find(opens, {}, found, epoch == 0 ? first : second);
      REQUIRE(found);
      CHECK(found->plan.epochs == (epoch == 0 ? 1 : 0));
    }
    CHECK(found->plan.draws == 500);
    CHECK(found->plan.first_epoch == 1);
  }
}

TEST_CASE("shuffles are searched for so many times for one program, however often it begins anew") {
  constexpr uint64_t kOutputs = 1 << 10;
  const uint64_t once = 2 * usual_seeds().size() * kOutputs;  // in both passes
  std::mt19937 random(28);
  const Reader reader{600, {1, 8, 2}, 0};
  OrderSearch search(
      dataset_of(reader.n), [] { return false; },
      {.all_seeds = false, .stream_outputs = kOutputs, .deep_outputs = 0, .when_idle = false}, once + 1);
  Samples order(reader.n);
  std::iota(order.begin(), order.end(), 0);
  for (const uint64_t tried : {once, 2 * once, 2 * once}) {
    std::shuffle(order.begin(), order.end(), random);
    search.begin();
    const double before = search.orders();
    const uint64_t seeds = tried - search.tried_in_vain(7);
    CHECK(!search.find(opens_of(reader, order, 180, random), {}, std::nullopt, 7));
    CHECK(search.tried_in_vain(7) == tried);
    CHECK(search.orders() > before + static_cast<double>(seeds));  // those are orders, too
  }
  // Another program, and one that is found.
  CHECK(!search.find(opens_of(reader, order, 180, random), {}, std::nullopt, 8));
  CHECK(search.tried_in_vain(8) == once);
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.random generator=default seed=1 draws=500"), 1);
  const auto opens = opens_of(reader, node_order(spec, reader.n, 0, 0), 180, random);
  search.begin();
  CHECK(search.find(opens, {}, std::nullopt, 8));
  CHECK(search.tried_in_vain(8) == 0);
}

// Of the seeds below a million the search is over in milliseconds; it begins with them.
TEST_CASE("all shuffles are searched on request, from the first opens that were seen") {
  std::mt19937 random(31);
  const Reader reader{kShuffled, {1, 16, 2}, 0};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.random generator=sampler seed=70001"), 1);
  const auto opens =
      opens_of(reader, node_order(spec, reader.n, 0, 0), OrderSearch::kMostOpens + 500, random);
  OrderSearch search(
      dataset_of(reader.n), [] { return false; },
      {.core_seconds = 60,
       .all_seeds = false,
       .stream_outputs = 1 << 10,
       .deep_outputs = 0,
       .when_idle = false},
      UINT64_MAX);
  CHECK(!search.find(opens, {}, std::nullopt));
  search.search_all_shuffles();
  search.begin();
  const auto found = search.find(opens, {}, std::nullopt);
  REQUIRE(found);
  CHECK(found->plan.seed == "70001");
  CHECK(found->plan.epochs == 1);
}

TEST_CASE("a year is found as the seed of any library") {
  std::mt19937 random(35);
  const Reader reader{600, {1, 8, 2}, 0.05};
  for (const char* text : {"sampler=numpy.legacy seed=1987", "sampler=python.random seed=2035"}) {
    const auto spec = *resolve_plan(*parse_plan(text), 1);
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
    search.allow(std::numeric_limits<double>::infinity());  // they come last
    const auto found =
        search.find(opens_of(reader, node_order(spec, reader.n, 0, 0), 60, random), {}, std::nullopt);
    INFO(text);
    REQUIRE(found);
    CHECK(found->plan.sampler == spec.sampler);
    CHECK(found->plan.seed == spec.seed);
  }
}

TEST_CASE("a seed of torch's samplers that few people give is found, and goes on in the next epoch") {
  std::mt19937 random(32);
  const Reader reader{kShuffled, {1, 16, 2}, 0.05};
  for (const char* text : {"sampler=torch.distributed seed=654321", "sampler=torch.random seed=240229"}) {
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, seeds_below(1'000'000), UINT64_MAX);
    search.allow(std::numeric_limits<double>::infinity());
    const auto spec = *resolve_plan(*parse_plan(text), 1);
    const auto found =
        search.find(opens_of(reader, node_order(spec, reader.n, 0, 0), 120, random), {}, std::nullopt);
    INFO(text);
    REQUIRE(found);
    CHECK(found->plan.sampler == spec.sampler);
    CHECK(found->plan.seed == spec.seed);
    CHECK(found->orders > 1e6);  // all that were tried count
    const auto on = search.follow_on(opens_of(reader, node_order(spec, reader.n, 1, 0), 120, random), *found);
    REQUIRE(on);
    CHECK(on->plan.epochs == 0);
    CHECK(on->plan.seed == spec.seed);
  }
}

TEST_CASE("other seeds of torch's samplers are tried in vain no more often than shuffles") {
  std::mt19937 random(37);
  const Reader reader{600, {1, 8, 2}, 0};
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, seeds_below(1000), 1);
  Samples order(reader.n);
  std::iota(order.begin(), order.end(), 0);
  for (int script = 0; script < 2; ++script) {
    std::shuffle(order.begin(), order.end(), random);
    search.begin();
    CHECK(!search.find(opens_of(reader, order, 180, random), {}, std::nullopt, 7));
    CHECK(search.tried_in_vain(7) == 4000);  // of both samplers, in both passes; only of the first script
  }
}

TEST_CASE("a shuffle that goes on is found before other seeds of torch's samplers are tried") {
  std::mt19937 random(38);
  const Reader reader{kShuffled, {1, 16, 2}, 0};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.random generator=default seed=42 draws=500"), 1);
  OrderSearch search(
      dataset_of(reader.n), [] { return false; }, seeds_below(1'000'000, 1 << 10), UINT64_MAX);
  std::optional<FoundOrder> found;
  double before = 0;
  for (const uint32_t epoch : {0, 1}) {
    search.begin();
    before = search.orders();
    found = search.find(opens_of(reader, node_order(spec, reader.n, epoch, 0), 60, random), {}, found);
    REQUIRE(found);
  }
  CHECK(found->plan.first_epoch == 1);
  CHECK(search.orders() < before + 100'000);
}

TEST_CASE("a reader that begins in the middle of an epoch is found there") {
  std::mt19937 random(25);
  const Reader reader{2000, {1, 8, 2}, 0.05};
  const auto spec = *resolve_plan(*parse_plan("sampler=torch.distributed seed=42"), 1);
  Samples order = node_order(spec, reader.n, 0, 0);
  order.erase(order.begin(), order.begin() + 1000);
  const auto found = watch(reader, opens_of(reader, order, 200, random));
  REQUIRE(found);
  CHECK(found->plan.start_sample > 700);
  CHECK(found->plan.start_sample <= 1000);
}

TEST_CASE("an order that nobody foretells is followed when it is repeated") {
  std::mt19937 random(26);
  for (const uint32_t workers : {0, 2, 4}) {
    const Reader reader{600, {1, 8, workers}, 0.05};
    Samples order(reader.n);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    auto opens = opens_of(reader, order, 5000, random);
    const size_t first = opens.size();
    CHECK(!watch(reader, opens));
    const auto again = opens_of(reader, order, 300, random);
    opens.insert(opens.end(), again.begin(), again.end());
    OrderSearch search(
        dataset_of(reader.n), [] { return false; }, OrderSearch::Shuffles::none);
    const auto found = search.find(opens, {}, std::nullopt);
    REQUIRE(found);
    INFO(workers << " " << format_plan(found->plan));
    CHECK(found->plan.sampler == "list");
    CHECK(found->plan.epochs == 0);
    PlanSpec plan = found->plan;
    plan.start_sample = 0;
    CHECK(same_order(node_order(plan, reader.n, 5, 0), order, 64));

    std::shuffle(order.begin(), order.end(), random);
    opens.resize(first);
    const auto other = opens_of(reader, order, 300, random);
    opens.insert(opens.end(), other.begin(), other.end());
    CHECK(!search.find(opens, {}, std::nullopt));
  }
}

TEST_CASE("the repetition of an order is looked for as soon as it may have begun") {
  OrderSearch search(
      dataset_of(600), [] { return false; }, OrderSearch::Shuffles::none);
  const std::vector<SeenOpen> opens(500, {file_of(600, 1), ThreadId(1), Access::read});
  CHECK(search.next_look(std::span(opens).first(100)) == 150);
  const size_t soon = search.next_look(opens);
  CHECK(soon > 600);
  CHECK(soon < 700);
}

TEST_CASE("few samples are no ground for certainty") {
  std::mt19937 random(26);
  for (const uint32_t n : {3, 8, 12}) {
    const Reader reader{n, {1, 1, 0}, 0};
    Samples order(n);
    std::iota(order.begin(), order.end(), 0);
    CHECK(!watch(reader, opens_of(reader, order, n, random)));
  }
}

}  // namespace clairfs::seen_opens
