// Two nodes in one process: one fetches chunks that lie in the other's RAM, over the in-process network
// (which copies twice where a real one copies once or not at all). What is measured is everything above the
// network. Items/s are chunks.
#include <semaphore>

#include <benchmark/benchmark.h>

#include "tests/support/network/peer_nodes.h"

namespace clairfs {
namespace {

constexpr uint64_t kFileSize = 110'000;  // a JPEG of ImageNet
constexpr uint32_t kFiles = 400;         // more than the asker's transit memory holds: each is fetched again

void BM_fetch_from_peer(benchmark::State& state) {
  NodesOptions options;
  options.nodes = 2;
  options.files = kFiles;
  options.least_bytes = options.most_bytes = kFileSize;
  options.chunk_size = 1 << 20;
  options.pfs_delay = {};
  PeerNodes nodes(options);
  nodes.set_homes([](ChunkId) { return std::vector{NodeId(1)}; });
  // All chunks into the RAM of node 1, none into that of node 0.
  nodes[0].policy.keep_nothing();
  nodes[1].policy.keep_everything();
  if (!nodes.await_serving()) return state.SkipWithError("the nodes do not find each other");
  Tally warm;
  for (uint32_t c = 0; c < kFiles; ++c) warm.acquire(nodes, 1, ChunkId(c));
  if (!warm.await_all()) return state.SkipWithError("warming up failed");

  std::counting_semaphore<> window(state.range(0));
  std::atomic<uint64_t> from_elsewhere{0};
  uint32_t next = 0;
  for (auto _ : state) {
    window.acquire();
    ++next;
    nodes[0].cache->acquire(ChunkId(next % kFiles), {Priority::Kind::prefetch, next},
                            [&](const Result<AcquiredChunk>& chunk) {
                              if (!chunk || chunk->origin != Origin::peer) ++from_elsewhere;
                              window.release();
                            });
  }
  for (int64_t i = 0; i < state.range(0); ++i) window.acquire();
  state.SetItemsProcessed(state.iterations());
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(kFileSize));
  if (from_elsewhere > 0) state.SkipWithError("not all chunks came from the peer");
}
BENCHMARK(BM_fetch_from_peer)
    ->ArgName("in_flight")
    ->Arg(1)
    ->Arg(8)
    ->Arg(32)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

}  // namespace
}  // namespace clairfs

BENCHMARK_MAIN();
