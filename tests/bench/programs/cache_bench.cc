// What the cache itself costs a miss, with a source that answers at once: misses a second, by one thread and
// by two, and how long a fetch that waits for memory takes to begin once there is some.
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "cache/chunks/chunk_cache.h"
#include "tests/support/captured_log.h"
#include "tests/support/fake_source.h"
#include "tests/support/made_up_catalog.h"

namespace clairfs {
namespace {

// More than transit memory holds of files of a page or less, so that each is a miss when its turn comes
// again.
constexpr uint32_t kFiles = 3 * (16 << 20) / 4096;

// Nothing is kept, so that each chunk passes through transit memory.
struct Node {
  Node() { cache = std::move(*ChunkCache::create({*catalog, source, {}, policy, metrics, log.logger()}, 0)); }
  const std::shared_ptr<const Catalog> catalog = made_up_catalog(std::vector<uint64_t>(kFiles, 64));
  CapturedLog log;
  Metrics metrics;
  FirstTouchPolicy policy;
  FakeSource source;
  std::unique_ptr<ChunkCache> cache;
};

void misses(benchmark::State& state) {
  static std::unique_ptr<Node> node;
  if (state.thread_index() == 0) node = std::make_unique<Node>();
  const auto threads = static_cast<uint32_t>(state.threads());
  uint32_t at = static_cast<uint32_t>(state.thread_index()) * (kFiles / threads);
  for (auto _ : state) {
    std::atomic<bool> answered = false;
    node->cache->acquire(ChunkId(at), {}, [&](const auto&) { answered = true; });
    while (!answered) {
      if (!node->source.complete_one()) std::this_thread::yield();
    }
    at = (at + 1) % kFiles;
  }
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) {
    state.counters["fetches_a_miss"] =
        static_cast<double>(node->source.fetches) / static_cast<double>(state.iterations() * threads);
    node->cache->stop(std::chrono::seconds(5));
    node.reset();
  }
}
BENCHMARK(misses)->Threads(1)->Threads(2)->UseRealTime();

// Transit memory is full of chunks on their way, and more fetches wait. One arrives: until the next has
// begun.
void begins_when_memory_comes_free(benchmark::State& state) {
  Node node;
  uint32_t next = 0;
  const auto ask = [&] { node.cache->acquire(ChunkId(next++ % kFiles), {}, [](const auto&) {}); };
  while (node.source.pending() == next) ask();
  for (auto _ : state) {
    const uint64_t begun = node.source.fetches;
    node.source.complete_one();
    while (node.source.fetches == begun) {
    }
    state.PauseTiming();
    ask();
    state.ResumeTiming();
  }
  node.cache->stop(std::chrono::seconds(5));
}
BENCHMARK(begins_when_memory_comes_free)->UseRealTime();

}  // namespace
}  // namespace clairfs

BENCHMARK_MAIN();
