// Time to make one epoch of ImageNet-1k, and a rank's slice of it, beside a plain std::shuffle.
//
//   sampler_bench [options of the benchmark library]
//   sampler_bench SAMPLER N      the first epoch of N samples: seconds, and the most memory that the process
//                                took for it, in one line of JSON. Or {"refused": REASON}.
//   sampler_bench --names        the samplers, one a line
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "plan/samplers/sampler.h"

using namespace clairfs;

namespace {

constexpr uint64_t kImageNet = 1281167;

/// Baseline: what a shuffle of that size costs on this machine.
void std_shuffle(benchmark::State& state) {
  std::mt19937 engine(42);
  for (auto _ : state) {
    std::vector<uint32_t> order(kImageNet);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), engine);
    benchmark::DoNotOptimize(order.data());
  }
}
BENCHMARK(std_shuffle)->Unit(benchmark::kMillisecond);

/// All epochs of one sampler, one after the other; only the shared order.
void epoch_order(benchmark::State& state, const SamplerSpec& spec) {
  auto sampler = make_sampler(spec);
  if (!sampler) return state.SkipWithError(sampler.error().message.c_str());
  uint32_t epoch = 0;
  for (auto _ : state) {
    auto order = (*sampler)->order(Epoch(epoch++));
    benchmark::DoNotOptimize(order.ok());
  }
}

/// The sequence of a node with 8 of 64 ranks: one order, 8 slices interleaved step by step.
void node_sequence(benchmark::State& state) {
  SamplerSpec spec{.n = kImageNet, .world = 64, .seed = "42"};
  auto sampler = make_sampler(spec);
  uint32_t epoch = 0;
  for (auto _ : state) {
    const IndexOrder order = *(*sampler)->order(Epoch(epoch));
    std::vector<RankOrder> ranks;
    for (uint32_t r = 0; r < 8; ++r)
      ranks.emplace_back(order, (*sampler)->slice(Epoch(epoch), TrainingRank(r)));
    std::vector<uint32_t> sequence;
    for (uint64_t k = 0; k < ranks[0].size(); ++k) {
      for (const RankOrder& rank : ranks) sequence.push_back(rank[k]);
    }
    benchmark::DoNotOptimize(sequence.data());
    ++epoch;
  }
}
BENCHMARK(node_sequence)->Unit(benchmark::kMillisecond);

SamplerSpec of(const std::string& name, uint64_t n = kImageNet) {
  SamplerSpec spec{.sampler = name, .n = n, .seed = "42"};
  if (name == "torch.weighted") spec.weights.assign(n, 1.0);
  if (name == "dali") spec.args.shuffle_after_epoch = true;
  if (name == "nopfs") spec.batch = 256;
  if (name == "webdataset") spec.shardshuffle = 1000;
  if (name == "streaming") {  // shards of 64 MiB of ImageNet
    std::vector<uint32_t> sizes(n / 600, 600);
    if (n % 600 != 0) sizes.push_back(static_cast<uint32_t>(n % 600));
    spec.shard_sizes = std::make_shared<const std::vector<uint32_t>>(std::move(sizes));
  }
  return spec;
}

[[maybe_unused]] const bool registered = [] {
  for (const std::string& name : sampler_names()) {
    if (name == "list" || name == "torch.subset") continue;  // the user's file; as torch.random
    benchmark::RegisterBenchmark(name.c_str(), epoch_order, of(name))->Unit(benchmark::kMillisecond);
  }
  return true;
}();

// Bytes, as the kernel counts them: VmRSS: now, VmHWM: at most so far. Not getrusage(), whose ru_maxrss
// begins with that of the program that called exec().
uint64_t memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(field)) return std::stoull(line.substr(field.size())) * 1024;
  }
  return 0;
}

int print_first_epoch(const std::string& name, uint64_t n) {
  const uint64_t before = memory("VmRSS:");
  const auto begin = std::chrono::steady_clock::now();
  auto sampler = make_sampler(of(name, n));
  const auto order = sampler ? (*sampler)->order(Epoch(0)) : Result<IndexOrder>(sampler.error());
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (order) {
    std::printf("{\"seconds\": %.3f, \"bytes\": %llu}\n", seconds.count(),
                static_cast<unsigned long long>(memory("VmHWM:") - before));
  } else {
    std::printf("{\"refused\": \"%s\"}\n", order.error().message.c_str());
  }
  return EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--names") {
    for (const std::string& name : sampler_names()) std::printf("%s\n", name.c_str());
    return EXIT_SUCCESS;
  }
  if (argc == 3 && argv[1][0] != '-') return print_first_epoch(argv[1], std::strtoull(argv[2], nullptr, 10));
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return EXIT_FAILURE;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return EXIT_SUCCESS;
}
