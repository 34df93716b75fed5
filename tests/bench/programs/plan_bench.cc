// How long planning takes: the numbers of one node and epoch, and of the dataset's numbering.
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "cache/catalog/builder.h"
#include "plan/formats/dataset.h"
#include "plan/formats/index/index_store.h"
#include "plan/run/plan_run.h"
#include "plan/sequence/access_sequence.h"
#include "plan/sequence/epoch_uses.h"
#include "plan/sequence/plan_sampler.h"
#include "plan/sequence/sequence_positions.h"
#include "plan/sequence/timeline.h"
#include "plan/tracking/rank_trackers.h"
#include "plan/tracking/tracker.h"
#include "tests/support/captured_log.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

constexpr uint32_t kImageNet = 1281167;
constexpr uint64_t kRecordStride = 28 << 12;  // in an LMDB, from a value of 110 KB to the next
constexpr uint64_t kLeafRecords = 74;         // of 20-byte keys that came in random order

AccessSequence planned(const std::string& text, uint32_t n) {
  const auto spec = resolve_plan(parse_plan(text).value(), 1);
  auto sampler = make_plan_sampler(*spec, n, DatasetSource(), nullptr);
  return std::move(AccessSequence::make(*spec, std::move(*sampler)).value());
}

void plan_epoch(benchmark::State& state, const std::string& plan) {
  AccessSequence sequence = planned(plan, kImageNet);
  uint32_t epoch = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    const auto made = sequence.sequence(Epoch(epoch++), NodeId(0));
    bytes = made->memory_bytes();
    benchmark::DoNotOptimize(made->sample_at(made->length() - 1));
  }
  state.counters["samples/s"] = benchmark::Counter(kImageNet, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["node_bytes"] = static_cast<double>(bytes);
}
BENCHMARK_CAPTURE(plan_epoch, one_node_one_rank, "seed=42")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_epoch, one_node_64_ranks, "seed=42 world=64 batch=32")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_epoch, one_of_64_nodes, "seed=42 world=64 ranks_per_node=1 batch=32")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_epoch, torch_random, "seed=42 sampler=torch.random batch=32")
    ->Unit(benchmark::kMillisecond);

// The baseline of the above: the shared order alone.
void shared_order(benchmark::State& state) {
  AccessSequence sequence = planned("seed=42", kImageNet);
  uint32_t epoch = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sequence.order(Epoch(epoch++)));
}
BENCHMARK(shared_order)->Unit(benchmark::kMillisecond);

// 1000 class folders, as ImageNet has them.
std::shared_ptr<const Catalog> imagenet() {
  constexpr uint32_t kClasses = 1000;
  CatalogBuilder builder("/data", 4U << 20, kImageNet + kClasses + 1);
  SourceAttributes folder;
  folder.mode = S_IFDIR | 0755;
  SourceAttributes image;
  image.mode = S_IFREG | 0644;
  image.size = 110000;
  builder.add(FileId(0), "", folder);
  for (uint32_t i = 0; i < kClasses; ++i) builder.add(FileId(0), "n" + std::to_string(10000000 + i), folder);
  for (uint32_t i = 0; i < kImageNet; ++i) {
    const auto parent = static_cast<uint32_t>(uint64_t{i} * kClasses / kImageNet);
    builder.add(FileId(1 + parent), "img_" + std::to_string(10000000 + i) + ".JPEG", image);
  }
  return builder.finish(0, 0).value();
}

void number_samples(benchmark::State& state, const std::string& plan) {
  DatasetSource source;
  source.catalog = imagenet();
  const PlanSpec spec = parse_plan(plan).value();
  uint64_t bytes = 0;
  for (auto _ : state) bytes = make_sample_index(spec, source).value()->memory_bytes();
  state.counters["bytes/sample"] = static_cast<double>(bytes) / kImageNet;
}
BENCHMARK_CAPTURE(number_samples, imagefolder, "seed=1 format=imagefolder")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(number_samples, files, "seed=1 format=files")->Unit(benchmark::kMillisecond);

// An LMDB with as many records of 110 KB.
std::shared_ptr<const Catalog> database() {
  CatalogBuilder builder("/data", 4U << 20, 2);
  SourceAttributes folder;
  folder.mode = S_IFDIR | 0755;
  SourceAttributes file;
  file.mode = S_IFREG | 0644;
  file.size = kImageNet * (kRecordStride + 4096 / kLeafRecords + 1);
  builder.add(FileId(0), "", folder);
  builder.add(FileId(0), "train.lmdb", file);
  return builder.finish(0, 0).value();
}

// Its records, and the leaves that every reader needs.
Result<IndexStore::Table> records_of(const std::shared_ptr<const Catalog>& catalog) {
  RecordTableBuilder table(catalog, "lmdb");
  uint64_t at = 0;
  for (uint32_t i = 0; i < kImageNet; ++i, at += kRecordStride) {
    if (i % kLeafRecords == 0) (void)table.share({FileId(1), std::exchange(at, at + 4096), 4096});
    (void)table.add_sample(ByteRange{FileId(1), at + 16, 110'000});
  }
  return table.finish();
}

// The saved index of such a file.
void reload_index(benchmark::State& state) {
  const std::shared_ptr<const Catalog> catalog = database();
  const IndexKey key{"lmdb", "keys=cursor", {FileId(1)}};
  CapturedLog log;
  const TempTree saved;
  bool made = IndexStore(saved.path(), log.logger())
                  .get(key, catalog, nullptr, [&] { return records_of(catalog); })
                  .ok();
  for (auto _ : state) {
    IndexStore store(saved.path(), log.logger());
    made = made && store
                       .get(key, catalog, nullptr,
                            [] {
                              return Result<IndexStore::Table>(Error{EIO, "not reloaded"});
                            })
                       .ok();
  }
  if (!made) state.SkipWithError("the index was not reloaded");
}
BENCHMARK(reload_index)->Unit(benchmark::kMillisecond);

// As many samples, each a file or each a record.
struct Numbered {
  std::shared_ptr<const Catalog> catalog;
  std::shared_ptr<const SampleIndex> index;
};

Numbered in_files() {
  DatasetSource source;
  source.catalog = imagenet();
  return {source.catalog, make_sample_index(parse_plan("seed=1").value(), source).value()};
}

Numbered in_records() {
  const std::shared_ptr<const Catalog> catalog = database();
  return {catalog, records_of(catalog).value()};
}

// What a plan makes of each epoch: the order, and when every sample and chunk comes. Its memory is that of
// the numbering and of two epochs, as many as it has at a time.
void epoch_of(benchmark::State& state, Numbered (*dataset)()) {
  const Numbered numbered = dataset();
  const auto samples = ChunkSamples::make(*numbered.index, *numbered.catalog);
  AccessSequence sequence = planned("seed=1", numbered.index->size());
  uint32_t epoch = 0;
  uint64_t bytes = 0;
  for (auto _ : state) {
    auto order = std::make_shared<const EpochSequence>(sequence.sequence(Epoch(epoch++), NodeId(0)).value());
    const PlannedEpoch made =
        PlannedEpoch::make(std::move(order), samples, *numbered.index, *numbered.catalog);
    bytes = made.memory_bytes();
  }
  const uint64_t numbering = numbered.index->memory_bytes() + (samples ? samples->memory_bytes() : 0);
  state.counters["bytes/sample"] = static_cast<double>(numbering + 2 * bytes) / kImageNet;
}
// An epoch takes a tenth of a second or more, the dataset some tenths once.
BENCHMARK_CAPTURE(epoch_of, files, in_files)->Unit(benchmark::kMillisecond)->Iterations(5);
BENCHMARK_CAPTURE(epoch_of, records, in_records)->Unit(benchmark::kMillisecond)->Iterations(5);

void uses_of_chunks(benchmark::State& state, bool derived) {
  DatasetSource source;
  source.catalog = imagenet();
  const auto index = make_sample_index(parse_plan("seed=1").value(), source).value();
  const auto positions = std::make_shared<const SequencePositions>(std::make_shared<const EpochSequence>(
      planned("seed=1", kImageNet).sequence(Epoch(0), NodeId(0)).value()));
  for (auto _ : state) {
    const auto samples = derived ? ChunkSamples::make(*index, *source.catalog) : nullptr;
    const EpochUses uses(positions, samples, *index, *source.catalog);
    benchmark::DoNotOptimize(uses.first_use(ChunkId(7)));
    state.counters["bytes/sample"] = static_cast<double>(uses.memory_bytes()) / kImageNet;
  }
}
BENCHMARK_CAPTURE(uses_of_chunks, derived, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(uses_of_chunks, shared, false)->Unit(benchmark::kMillisecond);

// What the policy asks for every sample of an epoch.
void next_use(benchmark::State& state, bool derived) {
  DatasetSource source;
  source.catalog = imagenet();
  const auto index = make_sample_index(parse_plan("seed=1").value(), source).value();
  const auto sequence = std::make_shared<const EpochSequence>(
      planned("seed=1", kImageNet).sequence(Epoch(0), NodeId(0)).value());
  const auto samples = derived ? ChunkSamples::make(*index, *source.catalog) : nullptr;
  const EpochUses uses(std::make_shared<const SequencePositions>(sequence), samples, *index, *source.catalog);
  uint32_t position = 0;
  for (auto _ : state) {
    const uint32_t sample = sequence->sample_at(position++ % kImageNet);
    const ChunkId chunk = source.catalog->chunks(index->range(sample, 0).file).first;
    benchmark::DoNotOptimize(uses.next_use(chunk, 7));
  }
}
BENCHMARK_CAPTURE(next_use, derived, true);
BENCHMARK_CAPTURE(next_use, shared, false);

void positions_of_samples(benchmark::State& state) {
  const auto sequence = std::make_shared<const EpochSequence>(
      planned("seed=1", kImageNet).sequence(Epoch(0), NodeId(0)).value());
  for (auto _ : state) {
    const SequencePositions positions(sequence);
    benchmark::DoNotOptimize(positions.of(7).data());
    state.counters["bytes/sample"] = static_cast<double>(positions.memory_bytes()) / kImageNet;
  }
}
BENCHMARK(positions_of_samples)->Unit(benchmark::kMillisecond);

// One observation, of every sample in order or of samples at random, while the plan is suspended.
void observe(benchmark::State& state, bool in_order) {
  AccessSequence plan = planned("seed=1", kImageNet);
  Tracker tracker(plan.reorder_window(), std::nullopt);
  std::vector<std::shared_ptr<const EpochSequence>> epochs;
  for (uint32_t epoch = 0; epoch < 2; ++epoch) {
    epochs.push_back(std::make_shared<const EpochSequence>(plan.sequence(Epoch(epoch), NodeId(0)).value()));
    tracker.add_epoch(std::make_shared<const SequencePositions>(epochs.back()), uint64_t{epoch} * kImageNet);
  }
  TimePoint now;
  uint32_t position = 0;
  std::mt19937 random(1);
  for (auto _ : state) {
    const uint32_t sample = in_order ? epochs[0]->sample_at(position++ % kImageNet) : random() % kImageNet;
    now += std::chrono::milliseconds(1);
    benchmark::DoNotOptimize(tracker.observe({&sample, 1}, Access::open, now));
  }
}
BENCHMARK_CAPTURE(observe, in_order, true)->Iterations(1000000);
BENCHMARK_CAPTURE(observe, at_random, false);

// One observation of one of several ranks, each read by a thread of its own, or by threads that are not
// known.
void observe_ranks(benchmark::State& state, uint32_t ranks, bool known) {
  const std::string world = " world=" + std::to_string(ranks) + " ranks_per_node=" + std::to_string(ranks);
  AccessSequence plan = planned("seed=1" + world, kImageNet);
  std::vector<std::unique_ptr<Tracker>> trackers;
  std::vector<Tracker*> all;
  std::vector<EpochSequence> orders;
  const auto order = plan.order(Epoch(0));
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    orders.push_back(plan.reader_sequence(*order, Epoch(0), NodeId(0), rank));
    trackers.push_back(std::make_unique<Tracker>(plan.reader_slack(), std::nullopt));
    trackers.back()->add_epoch(
        std::make_shared<const SequencePositions>(std::make_shared<const EpochSequence>(orders.back())), 0);
    all.push_back(trackers.back().get());
  }
  RankTrackers followed(all);
  TimePoint now;
  uint32_t position = 0;
  for (auto _ : state) {
    const uint32_t rank = position % ranks;
    const uint32_t sample = orders[rank].sample_at(position / ranks);
    ++position;
    now += std::chrono::milliseconds(1);
    benchmark::DoNotOptimize(
        followed.observe(ThreadId(known ? rank + 1 : 0), {&sample, 1}, Access::open, now));
  }
}
BENCHMARK_CAPTURE(observe_ranks, one, 1, true)->Iterations(1000000);
BENCHMARK_CAPTURE(observe_ranks, two, 2, true)->Iterations(1000000);
BENCHMARK_CAPTURE(observe_ranks, eight, 8, true)->Iterations(1000000);
BENCHMARK_CAPTURE(observe_ranks, eight_of_unknown_threads, 8, false)->Iterations(1000000);

// The most that a plan keeps on one of several nodes as a reader goes through two epochs: numbering, and the
// orders of the epochs round it.
void plan_memory(benchmark::State& state, const std::string& plan, uint32_t nodes) {
  DatasetSource source;
  source.catalog = imagenet();
  const PlanSpec spec = parse_plan(plan).value();
  uint64_t bytes = 0;
  uint32_t samples = 1;
  for (auto _ : state) {
    const auto run = PlanRun::make(spec, source, {NodeId(0), nodes}).value();
    TimePoint now;
    const auto prepare = [&] {
      while (run->prepare().value()) bytes = std::max(bytes, run->memory_bytes());
    };
    prepare();
    for (uint32_t epoch = 0; epoch < 2; ++epoch) {
      std::vector<std::shared_ptr<const EpochSequence>> orders;  // ranks in step
      samples = 0;
      for (const auto& reader : run->readers()) {
        orders.push_back(reader->timeline().epoch(Epoch(epoch)).sequence);
        samples += orders.back()->length();
      }
      for (uint32_t p = 0; p < samples; ++p) {
        const auto rank = static_cast<uint32_t>(p % orders.size());
        const uint32_t at = p / static_cast<uint32_t>(orders.size());
        if (at >= orders[rank]->length()) continue;
        const uint32_t sample = orders[rank]->sample_at(at);
        now += std::chrono::milliseconds(1);
        run->observe(ThreadId(rank + 1), {&sample, 1}, Access::open, now);
        if (p % 1000 == 0 || p < 10) prepare();
      }
    }
  }
  state.counters["bytes"] = static_cast<double>(bytes);
  state.counters["bytes/sample"] = static_cast<double>(bytes) / samples;
}
BENCHMARK_CAPTURE(plan_memory, 64_nodes_of_1_rank, "seed=42 epochs=90 world=64 ranks_per_node=1 batch=32", 64)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(plan_memory, 8_nodes_of_8_ranks, "seed=42 epochs=90 world=64 ranks_per_node=8 batch=32", 8)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(plan_memory, 1_node_of_64_ranks, "seed=42 epochs=90 world=64 batch=32", 1)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

void parse(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        parse_plan("format=imagefolder sampler=torch.distributed seed=42 epochs=90 world=8 batch=32"));
  }
}
BENCHMARK(parse);

}  // namespace

BENCHMARK_MAIN();
