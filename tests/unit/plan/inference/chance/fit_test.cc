#include "plan/inference/chance/fit.h"

#include <cmath>
#include <numeric>
#include <random>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::vector<Placed> in_order(uint32_t count, uint32_t thread = 1) {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < count; ++i) opens.push_back({i, thread});
  return opens;
}

constexpr Reading kLarge{.samples = 100000, .length = 100000};

}  // namespace

TEST_CASE("the bound of a binomial's tail is never below the tail") {
  for (const double q : {0.001, 0.03, 0.2, 0.5}) {
    for (const uint64_t m : {1, 5, 20, 60}) {
      double tail = 0;  // P[H >= h], from the top down
      for (uint64_t h = m;; --h) {
        const auto k = static_cast<double>(h);
        const auto n = static_cast<double>(m);
        tail += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) + k * std::log(q) +
                         (n - k) * std::log1p(-q));
        CHECK(std::exp(log_tail(m, q, h)) >= tail * (1 - 1e-9));
        if (h == 0) break;
      }
    }
  }
  CHECK(log_tail(10, 0.5, 5) == 0);
  CHECK(log_tail(0, 0.5, 0) == 0);
  CHECK(log_tail(20, 0.001, 20) == Approx(20 * std::log(0.001)));
}

TEST_CASE("a reader of the order is told from chance by a few opens") {
  const Fit fit = fit_order(in_order(10), kLarge);
  CHECK(fit.explains());
  CHECK(fit.explained == 1);
  CHECK(fit.start == 0);
  CHECK(fit.spread == 1);
  CHECK(fit.reached == 10);
  CHECK(fit.log_chance < std::log(1e-30));
}

TEST_CASE("all orders together are believed by accident as seldom as is said, however many come") {
  Fit fit{.explained = 1};
  double all = 0;
  for (double orders = 1; orders < 1e13; orders *= 2) {
    fit.log_chance = 0;  // the largest chance that is believed
    while (!is_certain(fit, orders)) fit.log_chance -= 0.01;
    all += std::log(2.0) * orders * std::exp(fit.log_chance);  // of the orders from here to the next
  }
  CHECK(all < kMostWrong / 2);
  CHECK(all > kMostWrong / 200);
  fit.explained = 0.5;
  CHECK(!is_certain(fit, 1));
}

TEST_CASE("opens that are no beginning of the order tell that a reader began further on") {
  std::vector<Placed> opens = in_order(12);
  for (Placed& open : opens) open.position += 5000;
  CHECK(fit_order(opens, kLarge).start == 5000);
  CHECK(fit_order(opens, kLarge).explains());
  Reading reading = kLarge;
  reading.from_start = true;
  CHECK(!fit_order(opens, reading).explains());
}

TEST_CASE("strays weaken what is said and do not prevent it, until they are many") {
  std::vector<Placed> opens = in_order(40);
  opens[3].position = opens[20].position = 70000;
  const Fit fit = fit_order(opens, kLarge);
  CHECK(fit.explained == Approx(0.95));
  CHECK(fit.log_chance > fit_order(in_order(40), kLarge).log_chance);
  for (size_t i = 0; i < opens.size(); i += 4) opens[i].position = 70000;
  CHECK(!fit_order(opens, kLarge).explains());
}

TEST_CASE("an order read from its end is not the order") {
  // random.sample() of all samples is random.shuffle() from the end, for the same seed.
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 15; ++i) {
    for (uint32_t worker = 4; worker-- > 0;) opens.push_back({249 - worker * 16 - i, 1 + worker});
  }
  CHECK(!fit_order(opens, {.samples = 250, .length = 250}).explains());
}

TEST_CASE("workers ahead of each other need a window, and each its own steps") {
  std::vector<Placed> opens;  // four workers with batches of 16
  for (uint32_t i = 0; i < 10; ++i) {
    for (uint32_t worker = 0; worker < 4; ++worker) opens.push_back({worker * 16 + i, worker});
  }
  const Fit fit = fit_order(opens, kLarge);
  CHECK(fit.explains());
  CHECK(fit.spread >= 46);  // the fourth open is the 49th sample
  CHECK(fit.log_chance < std::log(1e-60));
}

TEST_CASE("what a thread that goes on one by one leaves out is spread, and its strays are none") {
  std::vector<Placed> opens = in_order(80);
  for (size_t i = 40; i < opens.size(); ++i) opens[i].position += 5;
  CHECK(fit_order(opens, kLarge).spread == 6);
  opens.insert(opens.begin() + 20, Placed{42, 1});
  CHECK(fit_order(opens, kLarge).spread == 6);
  // Of several threads it may be one that is ahead.
  opens[20].thread = 2;
  opens.insert(opens.begin() + 21, Placed{43, 2});
  CHECK(fit_order(opens, kLarge).spread == 23);
}

TEST_CASE("a lone open of another thread is no spread, unless that may be a worker that begins") {
  std::vector<Placed> opens = in_order(80);
  for (size_t i = 40; i < opens.size(); ++i) opens[i].position += 5;
  opens.insert(opens.begin() + 20, Placed{42, 2});
  CHECK(fit_order(opens, kLarge).spread == 6);
  opens.push_back({95, 3});
  CHECK(fit_order(opens, kLarge).spread == 23);
}

TEST_CASE("strays are no spread of ranks either that read with one thread each") {
  std::vector<Placed> opens = in_order(80);
  for (size_t i = 0; i < opens.size(); ++i) opens[i].thread = static_cast<uint32_t>(1 + i % 2);
  for (size_t i = 40; i < opens.size(); ++i) opens[i].position += 6;
  Reading reading = kLarge;
  reading.stride = 2;
  CHECK(fit_order(opens, reading).spread == 7);
  opens.insert(opens.begin() + 20, Placed{43, 1});
  opens.insert(opens.begin() + 30, Placed{42, 3});
  CHECK(fit_order(opens, reading).spread == 7);
  for (Placed& open : opens) open.thread += open.position % 4 < 2 ? 0U : 10U;  // two threads of each rank
  CHECK(fit_order(opens, reading).spread == 24);
}

TEST_CASE("what one thread takes out of a buffer is spread") {
  std::vector<Placed> opens;
  for (uint32_t i = 0; i < 40; ++i) opens.push_back({i / 8 * 8 + 7 - i % 8, 1});
  CHECK(fit_order(opens, kLarge).spread == 8);
}

TEST_CASE("any order of few files in a sequential order of many says nothing") {
  // All files of a folder of 50, shuffled: they are the first of a dataset of 5,000.
  std::mt19937 random(1);
  double least = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Placed> opens = in_order(50);
    std::shuffle(opens.begin(), opens.end(), random);
    const Fit fit = fit_order(opens, {.samples = 5000, .length = 5000, .sequential = true});
    least = std::min(least, fit.log_chance);
  }
  CHECK(least > std::log(1e-3));
  CHECK(fit_order(in_order(30), {.samples = 5000, .length = 5000, .sequential = true}).log_chance <
        std::log(1e-28));
}

TEST_CASE("of random orders none is more likely than it says") {
  std::mt19937 random(2);
  constexpr uint32_t kSamples = 200;
  constexpr int kRounds = 20000;
  int at_all = 0;
  int thousandth = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<uint32_t> order(kSamples);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Placed> opens;
    for (uint32_t i = 0; i < 30; ++i) opens.push_back({order[i], 1 + i % 3});
    const double chance = fit_order(opens, {.samples = kSamples, .length = kSamples}).log_chance;
    at_all += chance < std::log(0.1) ? 1 : 0;
    thousandth += chance < std::log(1e-3) ? 1 : 0;
  }
  CHECK(at_all <= kRounds / 10);
  CHECK(thousandth <= kRounds / 1000);
}

TEST_CASE("a dataset of which all was opened, and no opens, say nothing") {
  CHECK(fit_order(in_order(20), {.samples = 20, .length = 20}).log_chance == 0);
  CHECK(!fit_order({}, kLarge).explains());
  const std::vector<Placed> nowhere(10);
  CHECK(!fit_order(nowhere, kLarge).explains());
}
