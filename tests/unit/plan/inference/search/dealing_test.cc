#include "plan/inference/search/dealing.h"

#include <random>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

bool nobody(uint32_t) {
  return false;
}

/// The first `count` opens of a node's order.
std::vector<Placed> opens_of(const LoaderModel::Loader& loader, size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<Placed> opens;
  LoaderModel(4000, loader, random).run([&](uint32_t position) {
    const uint32_t rank = position % loader.ranks;
    const uint32_t worker = loader.workers == 0 ? 0 : position / loader.ranks / loader.batch % loader.workers;
    opens.push_back({position, 1 + rank * 100 + worker});
    return opens.size() < count;
  });
  return opens;
}

Dealing dealing_of(const std::vector<Placed>& opens, uint32_t ranks) {
  const Fit fit = fit_order(opens, {.samples = 100000, .length = 4000, .stride = ranks});
  REQUIRE(fit.explains());
  return find_dealing(opens, ranks, fit, nobody);
}

}  // namespace

TEST_CASE("workers and batch show in what each thread opens") {
  CHECK(dealing_of(opens_of({1, 16, 4}, 60, 1), 1) == Dealing{16, 4});
  CHECK(dealing_of(opens_of({1, 32, 2}, 40, 2), 1) == Dealing{32, 2});
  CHECK(dealing_of(opens_of({1, 8, 0}, 30, 3), 1) == Dealing{1, 0});
  CHECK(dealing_of(opens_of({2, 8, 2}, 80, 4), 2) == Dealing{8, 2});
}

TEST_CASE("the reorder_window covers what was seen, whatever was not found out") {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::vector<Placed> opens = opens_of({1, 8, 4}, 100, seed);
    for (Placed& open : opens) open.thread = 0;  // readers in another namespace
    const Fit fit = fit_order(opens, {.samples = 100000, .length = 4000});
    REQUIRE(fit.explains());
    const Dealing dealing = find_dealing(opens, 1, fit, nobody);
    CHECK((2 * dealing.workers + 1) * dealing.batch >= fit.spread);
  }
}

TEST_CASE("workers that take turns are told by their being there") {
  std::vector<Placed> opens;  // two batches each
  for (uint32_t i = 0; i < 64; ++i) opens.push_back({i, 1 + i / 8 % 4});
  opens.resize(32);
  const Fit fit = fit_order(opens, {.samples = 100000, .length = 4000});
  CHECK(find_dealing(opens, 1, fit, nobody).workers == 0);
  CHECK(find_dealing(opens, 1, fit, [](uint32_t) { return true; }) == Dealing{8, 4});
}

TEST_CASE("processes that read one after the other are no workers") {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 60; ++i) opens.push_back({i, 1 + i / 6});
  CHECK(dealing_of(opens, 1) == Dealing{1, 0});
}

// Its first opens are enough for the order to be believed, in a window that has some of the others by chance.
TEST_CASE("a thread that leaves an order for another one does not widen its plan") {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 99; ++i) opens.push_back({i, 1});
  for (const uint32_t position : {200U, 520U, 333U, 471U, 259U, 588U, 402U, 296U, 547U, 361U, 444U, 278U,
                                  503U, 385U, 567U, 317U, 429U, 240U})
    opens.push_back({position, 1});
  const Fit fit =
      fit_order(opens, {.samples = 600, .length = 600, .stride = 1, .sequential = true, .from_start = true});
  REQUIRE(is_certain(fit, 1));
  REQUIRE(fit.window == 128);
  CHECK(find_dealing(opens, 1, fit, nobody) == Dealing{1, 0});
}

TEST_CASE("nor does a thread that leaves an order while another one opens a sample") {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 99; ++i) opens.push_back({i, 1});
  for (const uint32_t position : {200U, 520U, 333U, 471U, 259U, 588U, 402U, 296U, 547U, 361U, 444U, 278U,
                                  503U, 385U, 567U, 317U, 429U, 240U})
    opens.push_back({position, 1});
  opens[104].thread = 2;
  const Fit fit =
      fit_order(opens, {.samples = 600, .length = 600, .stride = 1, .sequential = true, .from_start = true});
  REQUIRE(is_certain(fit, 1));
  CHECK(find_dealing(opens, 1, fit, nobody) == Dealing{1, 0});
}

TEST_CASE("nor do workers that leave an order for another one") {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 112; ++i) opens.push_back({i / 16 * 16 + i % 2 * 8 + i % 16 / 2, 1 + i % 2});
  AccessSequence other = plan_over(600, "sampler=numpy.default_rng seed=42");
  for (const uint32_t position : order_of(other, 0)) {
    if (position >= 112 && opens.size() < 136)
      opens.push_back({position, static_cast<uint32_t>(1 + opens.size() % 2)});
  }
  const Fit fit =
      fit_order(opens, {.samples = 600, .length = 600, .stride = 1, .sequential = true, .from_start = true});
  REQUIRE(is_certain(fit, 1));
  REQUIRE(fit.window == 128);
  const Dealing dealing = find_dealing(opens, 1, fit, nobody);
  CHECK(dealing.workers == 2);
  CHECK((2 * dealing.workers + 1) * dealing.batch < 600 / 4);
}

TEST_CASE("all that workers have in flight of a small dataset is spread, also if they cannot be told apart") {
  std::vector<Placed> opens;  // two workers with batches of 64
  for (uint32_t i = 0; i < 90; ++i) opens.push_back({i % 2 * 64 + i / 2, 1 + i % 2});
  const Reading reading{.samples = 250, .length = 250};
  const Fit fit = fit_order(opens, reading);
  REQUIRE(is_certain(fit, 1));
  CHECK(fit.spread == 64);
  CHECK(find_dealing(opens, 1, fit, nobody) == Dealing{64, 2});
  for (Placed& open : opens) open.thread = 0;
  const Fit together = fit_order(opens, reading);
  REQUIRE(is_certain(together, 1));
  CHECK(together.spread == 64);
  CHECK(find_dealing(opens, 1, together, nobody) == Dealing{128, 0});
}

TEST_CASE("a worker that goes on with its next batch before another one begins is no stray") {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 100; ++i) opens.push_back({i < 64 ? i : 64 + i, 1});
  const Fit fit = fit_order(opens, {.samples = 600, .length = 600});
  REQUIRE(is_certain(fit, 1));
  CHECK(fit.spread == 65);
  const Dealing dealing = find_dealing(opens, 1, fit, nobody);
  CHECK(dealing.batch * (dealing.workers + 1) > 65);
}
