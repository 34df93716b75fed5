#include "plan/inference/seeds/shuffle_search.h"

#include <cmath>
#include <thread>

#include "plan/random/torch_random.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr uint64_t kSamplesHere = 20'000;

// What two workers open first of the epoch with this seed.
ShuffleSearch::Seen first_opens_of_epoch(uint32_t seed) {
  Mt19937 own(seed);
  std::vector<uint32_t> order(kSamplesHere);
  torch_randperm(own, order, kNewestTorch);
  ShuffleSearch::Seen seen{.n = kSamplesHere};
  for (size_t i = 0; i < 32; ++i) {
    seen.first_seen.push_back(order[i]);
    seen.first_seen.push_back(order[64 + i]);
  }
  return seen;
}

// Of the epoch whose seed is this output of the default generator.
ShuffleSearch::Seen first_opens_of(uint64_t value, uint64_t output) {
  Mt19937 generator(static_cast<uint32_t>(value));
  generator.discard(output);
  return first_opens_of_epoch(generator.next32());
}

ShuffleSearch::Options quick() {
  ShuffleSearch::Options options{
      .all_seeds = false, .stream_outputs = 1 << 13, .deep_outputs = 1 << 13, .when_idle = false};
  options.streams = {.outputs = 1 << 13, .notable_outputs = 1 << 13};
  return options;
}

}  // namespace

TEST_CASE("a seeded script is found in its first epoch, and all others from the second one on") {
  ShuffleSearch search(quick());
  const auto first = search.find(first_opens_of(1234, 3739));
  REQUIRE(first);
  CHECK(first->order.epochs == 1);
  CHECK(first->log_chance < std::log(1e-9));
  CHECK(search.core_seconds() > 0);
  const double used = search.core_seconds();

  const auto second = search.find(first_opens_of(1234, 3743));
  REQUIRE(second);
  CHECK(search.core_seconds() == used);  // it was foretold
  CHECK(second->order.epochs == 0);
  CHECK(second->order.first_epoch == 1);
  CHECK(second->order.sampler == "torch.random");
  CHECK(second->order.seed == "1234");
  CHECK(second->order.draws == 3736);
  CHECK(second->description == "torch.manual_seed(1234) after 3736 draws");

  const auto third = search.find(first_opens_of(1234, 3747));
  REQUIRE(third);
  CHECK(third->order.first_epoch == 2);
}

TEST_CASE("epochs that another stream gives begin anew") {
  ShuffleSearch search(quick());
  REQUIRE(search.find(first_opens_of(0, 100)));
  const auto other = search.find(first_opens_of(42, 100));
  REQUIRE(other);
  CHECK(other->order.epochs == 1);
  const auto next = search.find(first_opens_of(42, 102));
  REQUIRE(next);
  CHECK(next->order.first_epoch == 1);
  CHECK(next->order.draws == 97);
  CHECK(next->order.persistent_workers);
}

TEST_CASE("a validation loader that draws as well is known by the second epoch, other draws by the third") {
  for (const uint32_t stride : {6, 8, 5000}) {
    INFO(stride);
    ShuffleSearch search(quick());
    REQUIRE(search.find(first_opens_of(7, 100)));
    CHECK(search.has_begun());
    const double used = search.core_seconds();
    const auto second = search.go_on(first_opens_of(7, 100 + stride));
    REQUIRE(second);
    CHECK(second->order.epochs == (stride == 6 ? 0 : 1));
    const auto third = search.go_on(first_opens_of(7, 100 + 2 * stride));
    REQUIRE(third);
    CHECK(third->order.epochs == 0);
    CHECK(third->order.first_epoch == 2);
    CHECK(third->order.draws == 97);
    CHECK(third->order.other_draws == stride - 4);
    CHECK((search.core_seconds() > used) == (stride == 5000));  // those nearby are foretold
  }
}

TEST_CASE("each epoch of a stream is found among the outputs that come next, wherever it is") {
  ShuffleSearch search(quick());
  REQUIRE(search.find(first_opens_of(7, 100)));
  uint64_t output = 100;
  for (const uint32_t further : {300, 50'000, 7, 65'536}) {
    output += further;
    INFO(output);
    const auto epoch = search.go_on(first_opens_of(7, output));
    REQUIRE(epoch);
    CHECK(epoch->order.epochs == 1);
    CHECK(epoch->log_chance < std::log(1e-9));
  }
  CHECK(!search.go_on(first_opens_of(7, output + 65'537)));
  CHECK(!search.go_on(first_opens_of(8, output + 4)));
  // What goes on from there is known as it is of any other first epoch.
  const auto next = search.go_on(first_opens_of(7, output + 4));
  REQUIRE(next);
  CHECK(next->order.epochs == 0);
  CHECK(next->order.first_epoch == 1);
  CHECK(next->order.draws == output - 3);
}

TEST_CASE("the next epoch needs a few opens only where the loader is known") {
  ShuffleSearch search(quick());
  CHECK(!search.go_on(first_opens_of(0, 100)));  // there was none
  CHECK(!search.has_begun());
  REQUIRE(search.find(first_opens_of(0, 100)));
  auto seen = first_opens_of(0, 104);
  seen.first_seen.resize(12);
  CHECK(!search.go_on(seen));
  seen.reach = 100;
  CHECK(search.go_on(seen));
}

TEST_CASE("a job that is started again is followed as the first one was") {
  ShuffleSearch search(quick());
  REQUIRE(search.find(first_opens_of(0, 100)));
  const auto second = search.find(first_opens_of(42, 100));  // another seed, or a changed script
  REQUIRE(second);
  CHECK(second->order.epochs == 1);
  const auto third = search.find(first_opens_of(42, 104));
  REQUIRE(third);
  CHECK(third->order.epochs == 0);
  CHECK(third->order.seed == "42");
  CHECK(third->order.first_epoch == 1);

  const auto again = search.find(first_opens_of(42, 100));
  REQUIRE(again);
  CHECK(again->order.epochs == 1);
  const auto on = search.find(first_opens_of(42, 104));
  REQUIRE(on);
  CHECK(on->order.epochs == 0);
  CHECK(on->order.first_epoch == 1);
}

TEST_CASE("an epoch that is asked for again counts once") {
  ShuffleSearch search(quick());
  REQUIRE(search.find(first_opens_of(1234, 3739)));
  const double used = search.core_seconds();
  const auto again = search.find(first_opens_of(1234, 3739));
  REQUIRE(again);
  CHECK(again->order.epochs == 1);
  const auto next = search.find(first_opens_of(1234, 3743));
  REQUIRE(next);
  CHECK(next->order.epochs == 0);
  CHECK(next->order.first_epoch == 1);
  CHECK(search.find(first_opens_of(1234, 3743))->order == next->order);
  CHECK(search.core_seconds() == used);
}

TEST_CASE("what a large model draws is searched for likely values") {
  ShuffleSearch::Options options = quick();
  options.deep_streams = 2;
  options.deep_outputs = 1 << 17;
  CHECK(ShuffleSearch(options).find(first_opens_of(0, 100'003)));
  CHECK(!ShuffleSearch(options).find(first_opens_of(3407, 100'003)));
  auto seen = first_opens_of(3407, 100'003);
  seen.likely = {3407};
  CHECK(ShuffleSearch(options).find(seen));
  ShuffleSearch search(options);
  REQUIRE(search.find(first_opens_of(0, 100'003)));
  CHECK(search.tested() > 0);
  const auto second = search.find(first_opens_of(0, 100'007));
  REQUIRE(second);
  CHECK(second->order.epochs == 0);
  CHECK(second->order.draws == 100'000);
}

TEST_CASE("a stream is searched for once, and after the plan of the first epoch is known") {
  const auto self = std::this_thread::get_id();
  int asked = 0;  // by the search for streams, which takes no thread of its own
  ShuffleSearch::Options options = quick();
  options.stop = [&] {
    if (std::this_thread::get_id() == self) ++asked;
    return false;
  };
  options.streams = {.outputs = 0, .notable_outputs = 1 << 16};
  ShuffleSearch usual(options);
  REQUIRE(usual.find(first_opens_of(1234, 3739)));
  CHECK(usual.find(first_opens_of(1234, 3743))->order.epochs == 0);
  CHECK(asked == 0);  // where the seed was found

  // A seed that is found soon among all, and that lies further in a stream than is searched for seeds.
  uint64_t output = 1 << 13;
  Mt19937 generator(42);
  generator.discard(output);
  while (generator.next32() > 900'000) ++output;
  options.all_seeds = true;
  ShuffleSearch full(options);
  const auto first = full.find(first_opens_of(42, output));
  REQUIRE(first);
  CHECK(first->order.epochs == 1);
  CHECK(asked == 0);
  const auto second = full.find(first_opens_of(42, output + 4));
  REQUIRE(second);
  CHECK(asked > 0);
  CHECK(second->order.epochs == 0);
  CHECK(second->order.seed == "42");
  CHECK(second->order.draws == output - 3);
  CHECK(second->order.first_epoch == 1);
}

TEST_CASE("what the environment suggests is searched, too; what it does not is not found") {
  ShuffleSearch search(quick());
  auto seen = first_opens_of(987'654, 100);
  CHECK(!search.find(seen));
  seen.likely = {987'654};
  CHECK(search.find(seen));
}

TEST_CASE("without a seed each epoch is found anew, for itself") {
  ShuffleSearch::Options options = quick();
  options.all_seeds = true;
  ShuffleSearch search(options);
  double used = 0;
  for (const uint32_t seed :
       {3'100'000U, 1'700'000U, 2'500'000U}) {  // soon among all, and of no usual stream
    INFO(seed);
    const auto epoch = search.find(first_opens_of_epoch(seed));
    REQUIRE(epoch);
    CHECK(epoch->order.epochs == 1);
    CHECK(epoch->order.sampler == "torch.random");
    CHECK(epoch->order.seed == std::to_string(seed));
    CHECK(epoch->log_chance < std::log(1e-9));
    CHECK(search.core_seconds() > used);
    used = search.core_seconds();
  }
}

TEST_CASE("too few opens are not searched for") {
  ShuffleSearch search(quick());
  auto seen = first_opens_of(0, 100);
  seen.first_seen.resize(6);
  CHECK(!search.find(seen));
  CHECK(search.core_seconds() == 0);
  // Nor small datasets, which any order explains.
  ShuffleSearch::Seen few{.n = 20};
  for (uint32_t i = 0; i < 20; ++i) few.first_seen.push_back(i);
  CHECK(!search.find(few));
  CHECK(search.core_seconds() == 0);
}
