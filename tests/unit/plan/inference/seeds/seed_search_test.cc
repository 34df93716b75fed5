#include "plan/inference/seeds/seed_search.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <set>
#include <string>

#include <sched.h>

#include "plan/inference/seeds/seed_fit.h"
#include "plan/random/torch_random.h"
#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

namespace {

std::vector<uint32_t> torch_order(uint32_t seed, uint64_t n, uint32_t draws = 0) {
  Mt19937 generator(seed);
  generator.discard(draws);
  std::vector<uint32_t> order(n);
  torch_randperm(generator, order, {2, 5});
  return order;
}

// The same as far as opens go here, for sizes that would take gigabytes.
std::vector<uint32_t> torch_start(uint32_t seed, uint64_t n) {
  Mt19937 generator(seed);
  PartialShuffle shuffle(n, 1024);
  const auto start = shuffle.draw(generator);
  return {start.begin(), start.end()};
}

// The first `count` opens of `workers` that take a batch each in turn and go at the same speed.
std::vector<uint32_t> opens_of_workers(const std::vector<uint32_t>& order, size_t count, size_t workers,
                                       size_t batch) {
  std::vector<uint32_t> seen;
  for (size_t i = 0; seen.size() < count; ++i) {
    for (size_t w = 0; w < workers && seen.size() < count; ++w)
      seen.push_back(order[(i / batch * workers + w) * batch + i % batch]);
  }
  return seen;
}

// Replaces opens by those of other samples.
void with_strays(std::vector<uint32_t>& seen, uint64_t n, size_t strays) {
  Mt19937 random(1);
  std::set<uint32_t> all(seen.begin(), seen.end());
  for (size_t i = 0; i < strays; ++i) {
    uint32_t stray = 0;
    while (!all.insert(stray = static_cast<uint32_t>(random.next32() % n)).second) {
    }
    seen[(i + 1) * seen.size() / (strays + 1)] = stray;
  }
}

// A range of `width` seeds that the seed lies in the middle of, as far as there are some.
SeedSearchOptions seeds_around(uint32_t seed, uint32_t width) {
  SeedSearchOptions options;
  options.first = seed - std::min(seed, width / 2);
  options.end = seed + uint64_t{1} + std::min(UINT32_MAX - seed, width / 2);
  // As careful as when all are searched.
  options.other_orders = 4294967296.0;
  options.when_idle = false;  // a busy machine would make the tests wait
  return options;
}

constexpr uint32_t kSeedsAround = 20'000;

FoundSeed find_seed(const SeedEvidence& evidence, const SeedSearchOptions& options) {
  const auto result = search_seeds(evidence, options);
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result);
  CHECK(result->complete);
  return result->found.value_or(FoundSeed{0xdeadbeef, 0, 0});
}

constexpr uint64_t kSamplesOfImageNet = 1'281'167;

}  // namespace

TEST_CASE("the seed is found out of the opens of several workers, wherever it lies") {
  for (const uint32_t seed : {0U, 1U, 42U, 1'000'000U, 0x80000000U, 3'141'592'653U, 0xffffffffU}) {
    INFO(seed);
    const auto order = torch_order(seed, kSamplesOfImageNet);
    const SeedEvidence evidence{
        .n = kSamplesOfImageNet, .first_seen = opens_of_workers(order, 64, 4, 32), .reach = 1024};
    const FoundSeed found = find_seed(evidence, seeds_around(seed, kSeedsAround));
    CHECK(found.seed == seed);
    CHECK(found.explained == 64);
    CHECK(found.log_chance < std::log(1e-9));
  }
}

TEST_CASE("datasets of all sizes") {
  struct Size {
    uint64_t n, reach;
    size_t seen;
  };
  // 214,748,364: from there on torch since 2.6 shuffles otherwise.
  for (const auto& [n, reach, seen] :
       {Size{300, 48, 40}, Size{1000, 200, 64}, Size{4096, 200, 48}, Size{65'536, 300, 40},
        Size{100'000'000, 600, 32}, Size{214'748'363, 600, 32}, Size{UINT32_MAX, 600, 32}}) {
    INFO(n);
    const uint32_t seed = 123'456'789;
    const auto order = n < 100'000 ? torch_order(seed, n) : torch_start(seed, n);
    const SeedEvidence evidence{.n = n, .first_seen = opens_of_workers(order, seen, 2, 16), .reach = reach};
    CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
  }
}

TEST_CASE("orders of the real torch are found") {
  size_t found = 0;
  for (const auto& test : golden::cases("torch_randperm")) {
    const auto n = test.at("params").at("n").get<uint64_t>();
    const auto& call = test.at("result").at("calls")[0];
    if (n < 1000 || !call.contains("head")) continue;
    const auto seed = static_cast<uint32_t>(
        BigInteger::parse(test.at("params").at("seed").get<std::string>()).value().as_int64().value_or(-1));
    std::vector<uint32_t> head;
    for (const auto& sample : call.at("head")) head.push_back(static_cast<uint32_t>(golden::integer(sample)));
    const SeedEvidence evidence{.n = n, .first_seen = head, .reach = 80};
    INFO(test.at("id"));
    CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
    ++found;
  }
  CHECK(found >= 7);
}

TEST_CASE("strays do not hide the seed") {
  const uint32_t seed = 77'777;
  SeedEvidence evidence{.n = kSamplesOfImageNet,
                        .first_seen = opens_of_workers(torch_order(seed, kSamplesOfImageNet), 64, 4, 32),
                        .reach = 1024};
  with_strays(evidence.first_seen, kSamplesOfImageNet, 6);
  const FoundSeed found = find_seed(evidence, seeds_around(seed, kSeedsAround));
  CHECK(found.seed == seed);
  CHECK(found.explained == 58);
}

TEST_CASE("the seed is found though the order's first sample was never opened") {
  const uint32_t seed = 4'000'000'001;
  for (const size_t missed : {1, 2, 3}) {
    SeedEvidence evidence{.n = kSamplesOfImageNet,
                          .first_seen = opens_of_workers(torch_order(seed, kSamplesOfImageNet), 64, 2, 32),
                          .reach = 1024};
    for (size_t i = 0; i < missed; ++i) evidence.first_seen.erase(evidence.first_seen.begin() + i);
    INFO(missed);
    CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
  }
}

TEST_CASE("the seed is found though the other worker opened two batches before the first sample") {
  const uint32_t seed = 4'000'000'001;
  const auto order = torch_order(seed, 5000);
  SeedEvidence evidence{.n = 5000, .reach = 400};
  for (const int batch : {1, 3, 0, 2}) {
    const auto begin = order.begin() + 16 * batch;
    evidence.first_seen.insert(evidence.first_seen.end(), begin, begin + 16);
  }
  CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
}

TEST_CASE("the seed is found though one worker opened its first batch before all others") {
  const uint64_t n = 5000;
  const uint32_t draws = 2143;
  Mt19937 generator(1234);
  generator.discard(draws);
  const uint32_t drawn = generator.next32();
  SeedSearchOptions streams{.end = 0, .streams = {0, 1234}, .stream_outputs = draws + 1};
  streams.when_idle = false;
  const uint32_t seed = 1'000'000;
  for (const uint32_t worker : {1U, 2U, 3U}) {
    INFO(worker);
    // Of the second of two ranks.
    SeedEvidence evidence{.n = n, .reach = 160, .world = 2, .first_rank = 1, .batch = 16, .workers = 4};
    const OwnPlaces places(evidence);
    const auto opened = [&](const std::vector<uint32_t>& order) {
      evidence.first_seen.clear();
      for (uint64_t i = 0; i < 16; ++i) evidence.first_seen.push_back(order[places.of(16 * worker + i)]);
    };
    opened(torch_order(drawn, n));
    const FoundSeed of_stream = find_seed(evidence, streams);
    CHECK(of_stream.seed == drawn);
    REQUIRE(of_stream.origin);
    CHECK(of_stream.origin->output == draws);
    opened(torch_order(seed, n));
    CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
  }
}

TEST_CASE("where other workers begin is asked after all that is asked without them") {
  constexpr uint64_t kSamples = 5000;
  constexpr uint32_t kDraws = 2143;
  Mt19937 generator(1234);
  generator.discard(kDraws);
  const uint32_t drawn = generator.next32();
  const auto order = torch_order(drawn, kSamples);
  SeedEvidence evidence{.n = kSamples, .reach = 160, .batch = 16, .workers = 4};
  for (uint32_t place = 1; place < 64; ++place) {  // the second pass finds it, and no worker's
    if (place % 16 != 0) evidence.first_seen.push_back(order[place]);
  }
  SeedSearchOptions streams{.end = 0, .streams = {0, 1234}, .stream_outputs = kDraws + 1};
  streams.when_idle = false;
  const auto result = search_seeds(evidence, streams);
  REQUIRE(result);
  REQUIRE(result->found);
  CHECK(result->found->seed == drawn);
  CHECK(result->tested == 2 * streams.streams.size() * streams.stream_outputs);
}

TEST_CASE("a worker that begins where the kernels tell too few places is asked nothing") {
  SeedEvidence evidence{.n = 5000, .reach = 400, .batch = 75, .workers = 4};
  const auto order = torch_order(7, 5000);
  evidence.first_seen.assign(order.end() - 64, order.end());  // of no seed that is tried
  SeedSearchOptions options{.first = 10, .end = 20};
  options.when_idle = false;
  const auto result = search_seeds(evidence, options);
  REQUIRE(result);
  CHECK(!result->found);
  CHECK(result->tested == 4 * 10);  // both passes, and those of the workers that begin at 75 and 150
}

TEST_CASE("a rank's opens tell the seed of all") {
  const uint32_t seed = 5;
  const auto order = torch_order(seed, kSamplesOfImageNet);
  for (const auto& [world, rank, ranks] :
       {std::array<uint32_t, 3>{8, 3, 1}, {64, 0, 1}, {64, 63, 1}, {200, 170, 1}, {16, 4, 4}}) {
    SeedEvidence evidence{
        .n = kSamplesOfImageNet, .reach = 128, .world = world, .first_rank = rank, .ranks = ranks};
    const OwnPlaces places(evidence);
    for (size_t i = 0; i < 64; ++i) evidence.first_seen.push_back(order[places.of(i)]);
    INFO(world << " " << rank);
    CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
    evidence.first_rank = (rank + ranks) % world;
    CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed != seed);
  }
}

TEST_CASE("numbers that were drawn before the shuffle are left out") {
  const uint32_t seed = 42;
  SeedEvidence evidence{
      .n = 50'000, .first_seen = opens_of_workers(torch_order(seed, 50'000, 2), 48, 2, 16), .reach = 400};
  CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed != seed);
  evidence.draws = 2;
  CHECK(find_seed(evidence, seeds_around(seed, kSeedsAround)).seed == seed);
}

TEST_CASE("no seed is tried before the first or after the last") {
  const uint32_t seed = 5000;
  const SeedEvidence evidence{
      .n = 50'000, .first_seen = opens_of_workers(torch_order(seed, 50'000), 48, 2, 16), .reach = 400};
  SeedSearchOptions options = seeds_around(seed, 0);
  CHECK(find_seed(evidence, options).seed == seed);
  options.first = 0;
  options.end = seed;
  CHECK(find_seed(evidence, options).seed != seed);
  options.first = seed + 1;
  options.end = 2 * seed;
  CHECK(find_seed(evidence, options).seed != seed);
}

TEST_CASE("the outputs of streams are tried first, and as many as is said") {
  const uint64_t n = 50'000;
  const uint32_t draws = 70'000;  // more than a thread takes at a time
  Mt19937 generator(1234);
  generator.discard(draws);
  const uint32_t seed = generator.next32();
  SeedEvidence evidence{
      .n = n, .first_seen = opens_of_workers(torch_order(seed, n), 48, 2, 16), .reach = 400};
  SeedSearchProgress progress;
  SeedSearchOptions options{.progress = &progress};
  options.when_idle = false;
  options.streams = {0, 1234, 42};
  options.stream_outputs = draws + 1;
  CHECK(find_seed(evidence, options).seed == seed);
  CHECK(progress.tested < 3 * options.stream_outputs);
  evidence.first_seen.erase(evidence.first_seen.begin());
  CHECK(find_seed(evidence, options).seed == seed);
  CHECK(progress.tested < 3 * 3 * options.stream_outputs + 2 * (uint64_t{1} << 21));

  options.end = 0;  // nothing but the streams
  CHECK(find_seed(evidence, options).seed == seed);
  options.stream_outputs = draws;
  CHECK(find_seed(evidence, options).seed != seed);
}

TEST_CASE("of the likeliest streams more outputs are tried, and the seed's place in them is told") {
  const uint64_t n = 50'000;
  const uint64_t output = 1'000'000;
  Mt19937 generator(1234);
  generator.discard(output);
  const uint32_t seed = generator.next32();
  SeedEvidence evidence{
      .n = n, .first_seen = opens_of_workers(torch_order(seed, n), 48, 2, 16), .reach = 400};
  SeedSearchOptions options{.end = 0,
                            .streams = {0, 1234, 42},
                            .stream_outputs = 1 << 15,
                            .deep_streams = 2,
                            .deep_outputs = output + 1};
  options.when_idle = false;
  CHECK(outputs_tried(options) == (1 << 15) + 2.0 * (output + 1));
  for (const bool whole : {true, false}) {
    for (const uint32_t threads : {1U, 3U}) {
      options.threads = threads;
      const FoundSeed found = find_seed(evidence, options);
      INFO(whole << ", " << threads);
      CHECK(found.seed == seed);
      REQUIRE(found.origin);
      CHECK(found.origin->stream == 1234);
      CHECK(found.origin->output == output);
    }
    evidence.first_seen.erase(evidence.first_seen.begin());
  }
  options.deep_outputs = output;
  CHECK(find_seed(evidence, options).seed != seed);
  options.deep_outputs = output + 1;
  options.deep_streams = 1;
  CHECK(find_seed(evidence, options).seed != seed);
  // One that is found by itself comes from nowhere.
  CHECK(!find_seed(evidence, seeds_around(seed, kSeedsAround)).origin);
}

TEST_CASE("an order that is none of torch's is never found") {
  SeedEvidence evidence{.n = kSamplesOfImageNet, .reach = 1024};
  for (uint32_t i = 0; i < 64; ++i) evidence.first_seen.push_back(i);
  const auto result = search_seeds(evidence, seeds_around(100'000, 200'000));
  REQUIRE(result);
  CHECK(result->complete);
  CHECK(!result->found);
}

TEST_CASE("every kernel finds the same, with any number of threads") {
  const uint32_t seed = 1'010'000;  // among the first and the later seeds
  const SeedEvidence evidence{
      .n = 100'000, .first_seen = opens_of_workers(torch_order(seed, 100'000), 48, 2, 16), .reach = 400};
  for (const SeedKernel& kernel : seed_kernels()) {
    for (const uint32_t threads : {1U, 3U}) {
      SeedSearchOptions options = seeds_around(seed, 200'000);
      options.kernel = &kernel;
      options.threads = threads;
      INFO(kernel.name << ", " << threads);
      CHECK(find_seed(evidence, options).seed == seed);
    }
  }
}

TEST_CASE("too little evidence is refused instead of guessing") {
  const auto refused = [&](uint64_t n, size_t seen, uint64_t reach) {
    const auto own = torch_order(1, n);
    const SeedEvidence evidence{
        .n = n, .first_seen = {own.begin(), own.begin() + static_cast<ptrdiff_t>(seen)}, .reach = reach};
    const auto result = search_seeds(evidence, {});
    return !result && result.error().code == ENODATA;
  };
  CHECK(refused(1, 1, 10));
  CHECK(refused(2, 2, 10));
  CHECK(refused(10, 10, 10));
  CHECK(refused(100, 64, 100));   // all places are in reach
  CHECK(refused(1000, 20, 250));  // a quarter of 20
  CHECK(refused(kSamplesOfImageNet, 4, 64));
  CHECK(refused(kSamplesOfImageNet, 0, 64));
}

TEST_CASE("evidence that contradicts itself is refused") {
  SeedEvidence good{.n = 100'000,
                    .first_seen = opens_of_workers(torch_order(1, 100'000), 48, 2, 16),
                    .reach = 400,
                    .world = 4};
  REQUIRE(check_seed_evidence(good, {}));
  const auto code = [](SeedEvidence evidence, auto change) {
    change(evidence);
    const Status status = check_seed_evidence(evidence, {});
    return status ? 0 : status.error().code;
  };
  CHECK(code(good, [](SeedEvidence& e) { e.n = 0; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.n = uint64_t{1} << 32; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.reach = 0; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.first_seen[3] = e.first_seen[5]; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.first_seen[3] = 100'000; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.first_rank = 4; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.ranks = 0; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.ranks = 5; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.world = e.ranks = 0; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.world = 200'000, e.first_rank = 100'000; }) == EINVAL);
  CHECK(code(good, [](SeedEvidence& e) { e.world = 1000, e.first_rank = 227; }) == ERANGE);
  CHECK(code(good, [](SeedEvidence& e) { e.draws = UINT32_MAX; }) == ERANGE);
  CHECK(code(good, [](SeedEvidence& e) { e.n = UINT32_MAX, e.reach = 1 << 20; }) == ERANGE);
  const Status backwards = check_seed_evidence(good, {.first = 2, .end = 1});
  REQUIRE(!backwards);
  CHECK(backwards.error().code == EINVAL);
}

TEST_CASE("a search ends when it is told, and when its time is up") {
  const SeedEvidence evidence{
      .n = kSamplesOfImageNet,
      .first_seen = opens_of_workers(torch_order(UINT32_MAX, kSamplesOfImageNet), 64, 4, 32),
      .reach = 1024};
  SeedSearchProgress progress;
  SeedSearchOptions options{.threads = 2, .progress = &progress};
  std::atomic<int> others = 0;  // threads that would not wait for a core that has nothing else to do
  options.stop = [&] {
    if (::sched_getscheduler(0) != SCHED_IDLE) ++others;
    return true;
  };
  auto result = search_seeds(evidence, options);
  REQUIRE(result);
  CHECK(!result->complete);
  CHECK(!result->found);
  CHECK(others == 0);
  CHECK(progress.tested == 0);
  CHECK(progress.of == uint64_t{2} << 32);

  options.stop = {};
  options.when_idle = false;
  options.core_seconds = 1e-9;  // over with the first portion
  result = search_seeds(evidence, options);
  REQUIRE(result);
  CHECK(!result->complete);
  CHECK(result->core_seconds > 0);
  CHECK(progress.tested > 0);
  CHECK(progress.tested < uint64_t{1} << 32);
}

TEST_CASE("a seed that somebody expects is tested by itself") {
  const SeedEvidence evidence{.n = kSamplesOfImageNet,
                              .first_seen = opens_of_workers(torch_order(9, kSamplesOfImageNet), 64, 4, 32),
                              .reach = 1024};
  CHECK(explain_by_seed(evidence, 9).explained == 64);
  CHECK(explain_by_seed(evidence, 9).log_chance < -300);
  CHECK(explain_by_seed(evidence, 10).explained < 5);
}

TEST_CASE("the widest reach is as far as a seed is certain, and none where that is near") {
  const auto reach_of = [](uint64_t n, size_t seen, uint32_t world = 1, uint32_t ranks = 1,
                           uint64_t least = 0) {
    SeedEvidence evidence{.n = n, .world = world, .ranks = ranks};
    for (uint32_t i = 0; i < seen; ++i) evidence.first_seen.push_back(i);
    const uint64_t reach = widest_reach(evidence, {}, least);
    evidence.reach = reach;
    if (reach > 0) CHECK(check_seed_evidence(evidence, {}));
    return reach;
  };
  CHECK(reach_of(kSamplesOfImageNet, 64) == 16'384);
  CHECK(reach_of(kSamplesOfImageNet, 4) == 0);
  CHECK(reach_of(kSamplesOfImageNet, 0) == 0);
  CHECK(reach_of(20'000, 24) > 1024);
  CHECK(reach_of(20'000, 24) < 2048);
  CHECK(reach_of(20'000, 64) > reach_of(20'000, 24));
  CHECK(reach_of(20'000, 24, 1, 1, 16'384) == 0);
  CHECK(reach_of(1000, 100) > 250);
  CHECK(reach_of(20, 20) == 0);
  CHECK(reach_of(2, 2) == 0);
  CHECK(reach_of(kSamplesOfImageNet, 64, 64) == 4096);  // as far as is looked
  CHECK(reach_of(20'000, 64, 4, 2) > 1250);
}
