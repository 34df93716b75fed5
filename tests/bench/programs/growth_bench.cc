// How planning grows: with the files of the dataset on one node, and with files and nodes for the placement
// of a job. What is measured is what a daemon does when a plan is registered.
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <sys/stat.h>

#include "cache/catalog/builder.h"
#include "plan/formats/dataset.h"
#include "plan/placement/job_uses.h"
#include "plan/placement/placement_map.h"
#include "plan/run/plan_run.h"

using namespace clairfs;

namespace {

constexpr uint64_t kSize = 110'000;  // a JPEG of ImageNet
constexpr uint32_t kChunk = 4U << 20;
constexpr uint32_t kPerClass = 1'000;

std::shared_ptr<const Catalog> make_catalog(uint32_t files) {
  const uint32_t classes = (files + kPerClass - 1) / kPerClass;
  CatalogBuilder builder("/data", kChunk, files + classes + 1);
  SourceAttributes folder;
  folder.mode = S_IFDIR | 0755;
  SourceAttributes image;
  image.mode = S_IFREG | 0644;
  image.size = kSize;
  builder.add(FileId(0), "", folder);
  for (uint32_t i = 0; i < classes; ++i) builder.add(FileId(0), "n" + std::to_string(10'000'000 + i), folder);
  for (uint32_t i = 0; i < files; ++i) {
    builder.add(FileId(1 + i / kPerClass), "img_" + std::to_string(10'000'000 + i) + ".JPEG", image);
  }
  return builder.finish(0, 0).value();
}

/// Made once for each number of files.
DatasetSource dataset(uint32_t files) {
  static std::shared_ptr<const Catalog> catalog;
  static uint32_t of = 0;
  if (of != files) {
    catalog.reset();
    catalog = make_catalog(files);
    of = files;
  }
  DatasetSource source;
  source.catalog = catalog;
  return source;
}

std::shared_ptr<PlanRun> registered(uint32_t files, uint32_t nodes) {
  const std::string text = "seed=42 epochs=90 batch=32 ranks_per_node=1 world=" + std::to_string(nodes);
  return PlanRun::make(parse_plan(text).value(), dataset(files), {NodeId(0), nodes}).value();
}

// Until the first epochs are known.
void register_plan(benchmark::State& state) {
  const auto files = static_cast<uint32_t>(state.range(0));
  const DatasetSource source = dataset(files);
  uint64_t bytes = 0;
  for (auto _ : state) {
    const auto run = registered(files, 1);
    while (run->prepare().value()) {
    }
    bytes = run->memory_bytes();
  }
  state.counters["plan_bytes"] = static_cast<double>(bytes);
  state.counters["catalog_bytes"] = static_cast<double>(source.catalog->memory_bytes());
}
BENCHMARK(register_plan)->RangeMultiplier(10)->Range(10'000, 10'000'000)->Unit(benchmark::kMillisecond);
// Takes some 20 GB, so that cost.py runs it only when it is told to.
BENCHMARK(register_plan)->Arg(100'000'000)->Unit(benchmark::kMillisecond)->Iterations(1);

// Each node keeps its part of the dataset, a third of it in RAM.
void place(benchmark::State& state) {
  const auto files = static_cast<uint32_t>(state.range(0));
  const auto nodes = static_cast<uint32_t>(state.range(1));
  const auto run = registered(files, nodes);
  const DatasetSource source = dataset(files);
  const uint64_t share = kSize * files / nodes;
  const std::vector<NodeCapacity> rooms(nodes, {share / 3, share - share / 3});
  uint64_t bytes = 0;
  for (auto _ : state) {
    JobUses uses(*source.catalog, nodes);
    if (!run->add_uses(uses, kPlacementEpochs)) state.SkipWithError("no uses");
    uses.finish();
    bytes = PlacementMap::make(*source.catalog, std::move(uses), rooms).memory_bytes();
  }
  state.counters["placement_bytes"] = static_cast<double>(bytes);
}
BENCHMARK(place)
    ->ArgNames({"files", "nodes"})
    ->ArgsProduct({{10'000, 100'000}, {8}})
    ->ArgsProduct({{1'000'000}, {1, 4, 8, 16, 64, 256}})
    ->Args({10'000'000, 8})
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
