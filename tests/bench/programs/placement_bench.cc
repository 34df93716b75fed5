// What it takes to place the chunks of ImageNet-1k: 1.28 million files of 110 KB, 16 epochs of uses.
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "plan/placement/placement_map.h"
#include "tests/support/made_up_job.h"

using namespace clairfs;

namespace {

constexpr uint32_t kImageNet = 1281167;
constexpr uint64_t kSize = 110000;
constexpr uint32_t kChunk = 4U << 20;

/// Made once for each number of nodes: making the sequences takes longer than what is measured.
const MadeUpJob& job_of(uint32_t nodes) {
  static std::unique_ptr<MadeUpJob> job;
  if (!job || job->nodes != nodes) {
    job.reset();
    job = std::make_unique<MadeUpJob>(std::vector<uint64_t>(kImageNet, kSize), kChunk, nodes,
                                      kPlacementEpochs, "seed=42 batch=32");
  }
  return *job;
}

/// A third of each node's share in RAM. `percent`: what all nodes keep together, of the dataset.
std::vector<NodeCapacity> capacities(uint32_t nodes, int64_t percent) {
  const uint64_t bytes = round_to_pages(kSize) * kImageNet / 100 * static_cast<uint64_t>(percent) / nodes;
  return std::vector<NodeCapacity>(nodes, {bytes / 3, bytes - bytes / 3});
}

/// Part of the uses that are on a node that keeps the chunk.
double local_share(const JobUses& uses, const PlacementMap& placement) {
  uint64_t local = 0;
  uint64_t all = 0;
  for (uint32_t c = 0; c < uses.chunks(); ++c) {
    uses.for_each_use(ChunkId(c), [&](NodeId node, uint32_t count) {
      all += count;
      local += placement.tier_at(node, ChunkId(c)) == Tier::none ? 0 : count;
    });
  }
  return static_cast<double>(local) / static_cast<double>(all);
}

void count_uses(benchmark::State& state) {
  const MadeUpJob& job = job_of(static_cast<uint32_t>(state.range(0)));
  for (auto _ : state) {
    const JobUses uses = job.uses();
    state.counters["bytes/chunk"] = static_cast<double>(uses.memory_bytes()) / kImageNet;
  }
}
BENCHMARK(count_uses)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

void make_placement(benchmark::State& state) {
  const MadeUpJob& job = job_of(static_cast<uint32_t>(state.range(0)));
  const auto rooms = capacities(job.nodes, state.range(1));
  JobUses uses = job.uses();
  uses.finish();
  for (auto _ : state) {
    const PlacementMap placement = PlacementMap::make(*job.catalog, uses, rooms);
    state.PauseTiming();
    state.counters["bytes/chunk"] = static_cast<double>(placement.memory_bytes()) / kImageNet;
    state.counters["local"] = local_share(uses, placement);
    state.counters["homeless"] = static_cast<double>(placement.homeless_bytes()) / (1.0 * kSize * kImageNet);
    state.ResumeTiming();
  }
}
BENCHMARK(make_placement)
    ->ArgNames({"nodes", "percent"})
    ->ArgsProduct({{4}, {50, 100, 200}})
    ->ArgsProduct({{64}, {50, 100, 200}})
    ->Unit(benchmark::kMillisecond);

void without_one_node(benchmark::State& state) {
  const MadeUpJob& job = job_of(static_cast<uint32_t>(state.range(0)));
  const PlacementMap placement =
      PlacementMap::make(*job.catalog, job.uses(), capacities(job.nodes, state.range(1)));
  std::vector<bool> dead(job.nodes);
  dead[1] = true;
  for (auto _ : state) benchmark::DoNotOptimize(placement.without(dead).homeless_bytes());
}
BENCHMARK(without_one_node)
    ->ArgNames({"nodes", "percent"})
    ->ArgsProduct({{4, 64}, {100, 200}})
    ->Unit(benchmark::kMillisecond);

void order_of_warm_up(benchmark::State& state) {
  const MadeUpJob& job = job_of(static_cast<uint32_t>(state.range(0)));
  const PlacementMap placement = PlacementMap::make(*job.catalog, job.uses(), capacities(job.nodes, 100));
  for (auto _ : state) benchmark::DoNotOptimize(placement.prefill_order(NodeId(1)).data());
}
BENCHMARK(order_of_warm_up)->Arg(4)->Arg(64)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
