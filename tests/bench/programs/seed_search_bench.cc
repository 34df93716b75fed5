// Time to test a seed of torch's generator, by each kernel of this CPU, and what all of them take.
//
// `ns_per_seed` and `core_seconds_for_all` (2^32 of them) count; the time of an iteration is that of as many
// seeds as it takes.
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "plan/inference/seeds/default_generator.h"
#include "plan/inference/seeds/seed_fit.h"
#include "plan/inference/seeds/seed_search.h"

using namespace clairfs;

namespace {

constexpr uint64_t kAll = uint64_t{1} << 32;

void count(benchmark::State& state, uint64_t seeds, double core_seconds) {
  state.counters["ns_per_seed"] = core_seconds * 1e9 / static_cast<double>(seeds);
  state.counters["core_seconds_for_all"] =
      core_seconds * static_cast<double>(kAll) / static_cast<double>(seeds);
}

/// Only the first output: the floor.
void first_output(benchmark::State& state, const SeedKernel& kernel) {
  std::vector<uint32_t> seeds(kSeedBlock);
  std::vector<uint32_t> out(kSeedBlock);
  for (auto _ : state) {
    kernel.first_outputs(seeds.data(), 1, out.data());
    benchmark::DoNotOptimize(out.data());
    for (uint32_t& seed : seeds) ++seed;
  }
  state.counters["ns_per_seed"] =
      benchmark::Counter(static_cast<double>(state.iterations() * kSeedBlock) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

/// A pass that finds nothing: none of the opens belongs together.
void pass(benchmark::State& state, const SeedKernel& kernel, uint64_t n, uint64_t reach) {
  SeedEvidence evidence{.n = n, .reach = reach};
  for (uint32_t i = 0; i < 64; ++i) evidence.first_seen.push_back(static_cast<uint32_t>(i * (n / 64)));
  SeedSearchOptions options{.first = 1 << 30, .end = (1 << 30) + (1 << 23), .kernel = &kernel};
  double core_seconds = 0;
  uint64_t seeds = 0;
  for (auto _ : state) {
    SeedSearchProgress progress;
    options.progress = &progress;
    const auto result = search_seeds(evidence, options);
    if (!result || result->found) return state.SkipWithError("the search failed, or found what is not there");
    core_seconds += result->core_seconds;
    seeds += progress.tested;
  }
  count(state, seeds, core_seconds);
}

/// The streams of torch.manual_seed().
void stream_output(benchmark::State& state) {
  Mt19937 generator(42);
  for (auto _ : state) benchmark::DoNotOptimize(generator.draw_until(0x12345678, 1 << 16));
  state.counters["ns_per_output"] =
      benchmark::Counter(static_cast<double>(state.iterations() << 16) * 1e-9,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(stream_output);

[[maybe_unused]] const bool registered = [] {
  struct Size {
    uint64_t n, reach;
  };
  for (const SeedKernel& kernel : seed_kernels()) {
    const std::string name = kernel.name;
    benchmark::RegisterBenchmark(("first_output/" + name).c_str(), first_output, kernel);
    for (const auto& [n, reach] :
         {Size{1'281'167, 1024}, Size{100'000, 1024}, Size{10'000, 1024}, Size{1000, 250}}) {
      benchmark::RegisterBenchmark(("pass/" + name + "/n:" + std::to_string(n)).c_str(), pass, kernel, n,
                                   reach)
          ->Unit(benchmark::kMillisecond)
          ->Iterations(1);
    }
  }
  return true;
}();

}  // namespace

BENCHMARK_MAIN();
