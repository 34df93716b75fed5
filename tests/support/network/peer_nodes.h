// Several nodes of a job in one process: real caches and jobs, a network and a PFS that the test controls.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cache/catalog/scan.h"
#include "cache/chunks/chunk_cache.h"
#include "cache/io/memory.h"
#include "net/job.h"
#include "tests/support/captured_log.h"
#include "tests/support/eventually.h"
#include "tests/support/network/in_process_transport.h"
#include "tests/support/slow_source.h"
#include "tests/support/temp_tree.h"

namespace clairfs {

/// Chunk c lives on node c modulo the number of nodes, and on the `copies` nodes after it.
inline HoldersOf modulo_homes(uint32_t nodes, uint32_t copies = 0) {
  return [nodes, copies](ChunkId chunk) {
    std::vector<NodeId> holders;
    for (uint32_t i = 0; i <= copies; ++i) holders.emplace_back((chunk.value + i) % nodes);
    return holders;
  };
}

/// Keeps what has its home here and lets the rest pass, as a placement asks for.
class HomePolicy final : public TierPolicy {
 public:
  HomePolicy(NodeId self, uint32_t nodes, Tier tier) : self_(self), nodes_(nodes), tier_(tier) {}
  TierChoice choose_tier(ChunkId chunk, uint64_t bytes, const TierSpace& space, const Use& use) override {
    return {would_keep(chunk, bytes, space, use) ? tier_ : Tier::none, {}};
  }
  bool would_keep(ChunkId chunk, uint64_t, const TierSpace&, const Use&) const override {
    return keeps_.value_or(chunk.value % nodes_ == self_.value);
  }
  void keep_everything() { keeps_ = true; }
  void keep_nothing() { keeps_ = false; }

 private:
  const NodeId self_;
  const uint32_t nodes_;
  const Tier tier_;
  std::optional<bool> keeps_;  // set before anything is fetched
};

struct NodesOptions {
  uint32_t nodes = 4;
  uint32_t files = 64;
  uint64_t least_bytes = 1000;
  uint64_t most_bytes = 150000;
  uint32_t chunk_size = 64 << 10;
  std::vector<RecordChunk> record_chunks = {};
  uint64_t ram = 64 << 20;
  uint64_t nvme = 0;  ///< then homes keep their chunks there
  uint64_t seed = 1;
  NetworkFaults faults;
  Duration pfs_delay = std::chrono::milliseconds(3);
  /// No slow machine makes a healthy node late, unless impatient() is called.
  MembershipTimes times{std::chrono::milliseconds(50), std::chrono::minutes(1), std::chrono::minutes(2)};
  PeerClientOptions client = patient();
  PeerServerOptions server;

  /// Faults cost a fraction of a second (and so may a slow machine).
  NodesOptions& impatient() {
    times.late_after = std::chrono::milliseconds(400);
    times.dead_after = std::chrono::milliseconds(1500);
    client.probe_after = std::chrono::milliseconds(50);
    client.least_silence = std::chrono::milliseconds(300);
    client.most_silence = std::chrono::milliseconds(600);
    client.slow_fetch = std::chrono::milliseconds(500);
    client.most_wait = std::chrono::seconds(5);
    return *this;
  }
  static PeerClientOptions patient() {
    PeerClientOptions client;
    client.least_silence = client.most_silence = client.most_wait = client.most_stall = client.slow_fetch =
        std::chrono::minutes(1);
    return client;
  }
};

/// One node. Deps are taken down in the order that Job asks for.
class PeerNode {
 public:
  PeerNode(const NodesOptions& options, InProcessNetwork& network, NodeId rank,
           std::shared_ptr<const Catalog> its_catalog)
      : source(its_catalog->size(), options.seed + 100 + rank.value, options.pfs_delay),
        policy(rank, options.nodes, options.nvme > 0 ? Tier::nvme : Tier::ram),
        catalog(std::move(its_catalog)),
        job(std::make_unique<Job>(Job::Deps{network.endpoint(rank), clock, metrics, log.logger()},
                                  job_options(options, rank), [this](const std::string&) { ++refused; })),
        routed(job->make_source(*catalog, source)) {
    if (options.nvme > 0) open_store(options.nvme);
    ChunkCache::Deps deps{*catalog, routed, {}, policy, metrics, log.logger()};
    if (store) deps.stores.push_back(store.get());
    cache = std::move(*ChunkCache::create(deps, options.ram));
    server.reset(new PeerServer(job->make_server(*catalog, *cache, routed)));
    job->serve(*catalog, *server);
  }
  ~PeerNode() { end(); }
  void end() {
    if (!cache) return;
    job->leave("");
    stopped_in_time = cache->stop(std::chrono::seconds(20));
    job->stop(std::chrono::seconds(1));
    cache.reset();
  }

  const SteadyClock clock;
  CapturedLog log;
  Metrics metrics;
  SlowSource source;
  HomePolicy policy;
  TempTree nvme;
  std::unique_ptr<IoBackend> nvme_io;
  std::unique_ptr<NvmeStore> store;
  std::atomic<int> refused{0};
  bool stopped_in_time = true;
  const std::shared_ptr<const Catalog> catalog;
  std::unique_ptr<Job> job;
  RoutedSource routed;
  std::unique_ptr<ChunkCache> cache;
  std::unique_ptr<PeerServer> server;  // after the job's end

 private:
  static JobOptions job_options(const NodesOptions& options, NodeId rank) {
    JobOptions job;
    job.host = "node" + std::to_string(rank.value);
    job.chunk_size = options.chunk_size;
    job.ram_capacity = options.ram;
    job.times = options.times;
    job.client = options.client;
    job.server = options.server;
    return job;
  }

  void open_store(uint64_t capacity) {
    nvme.make_directory("nvme");
    std::filesystem::permissions(nvme.at("nvme"), std::filesystem::perms::owner_all);
    nvme_io = std::move(*make_io_backend({IoKind::threads, 8, "nvme-io"}, log.logger()));
    store = std::move(*NvmeStore::open({nvme.at("nvme"), capacity}, *nvme_io, clock, log.logger(), metrics));
  }
};

/// All of them. A test that needs another order of events builds its own from the parts.
class PeerNodes {
 public:
  explicit PeerNodes(const NodesOptions& options)
      : options_(options), network(options.nodes, options.seed, options.faults) {
    std::mt19937_64 random(options.seed);
    for (uint32_t i = 0; i < options.files; ++i) {
      tree.write("f" + std::to_string(10000 + i),
                 std::uniform_int_distribution<uint64_t>(options.least_bytes, options.most_bytes)(random));
    }
    CapturedLog log;
    ScanOptions scan;
    scan.chunk_size = options.chunk_size;
    scan.record_chunks = options.record_chunks;
    catalog = *scan_catalog(tree.path(), scan, log.logger());
    for (uint32_t i = 0; i < options.nodes; ++i)
      nodes.push_back(std::make_unique<PeerNode>(options, network, NodeId(i), catalog));
  }
  ~PeerNodes() {
    for (auto& node : nodes) node->end();
  }

  PeerNode& operator[](size_t rank) { return *nodes[rank]; }
  size_t size() const { return nodes.size(); }
  void set_homes(const HoldersOf& homes) {
    for (auto& node : nodes) node->routed.set_homes(homes);
  }
  /// Every node knows every other and would ask it.
  bool all_serve() const {
    for (const auto& node : nodes) {
      for (const PeerReport& peer : node->job->nodes()) {
        if (peer.node != node->job->self() && !peer.serves) return false;
      }
    }
    return true;
  }
  /// Waits for that.
  bool await_serving() {
    return network.points().wait_until([this] { return all_serve(); });
  }
  /// Bytes that were read from the PFS, by file, over all nodes.
  std::vector<uint64_t> pfs_bytes() const {
    std::vector<uint64_t> sum(catalog->size());
    for (const auto& node : nodes) {
      const auto bytes = node->source.bytes_of_files();
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += bytes[i];
    }
    return sum;
  }
  uint64_t total_pfs_bytes() const {
    uint64_t sum = 0;
    for (const uint64_t bytes : pfs_bytes()) sum += bytes;
    return sum;
  }

 private:
  const NodesOptions options_;

 public:
  TempTree tree;
  InProcessNetwork network;
  std::shared_ptr<const Catalog> catalog;
  std::vector<std::unique_ptr<PeerNode>> nodes;
};

/// What came of many acquire() calls. Outlives them.
struct Tally {
  std::atomic<uint64_t> asked{0};
  AwaitedCount answered;
  std::atomic<uint64_t> failed{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> from_peers{0};

  /// Asks for a chunk and checks every byte of it.
  void acquire(PeerNodes& nodes, size_t node, ChunkId chunk, Priority priority = {}) {
    ++asked;
    const ChunkRange range = nodes.catalog->range(chunk);
    nodes[node].cache->acquire(chunk, priority, [this, range](const Result<AcquiredChunk>& result) {
      if (!result) {
        ++failed;
      } else {
        uint64_t at = range.offset;
        for (const iovec& part : result->data->block.slices(0, range.length)) {
          const auto* bytes = static_cast<const unsigned char*>(part.iov_base);
          for (size_t i = 0; i < part.iov_len; ++i) {
            if (bytes[i] != fake_byte(range.file, at++)) {
              ++wrong;
              break;
            }
          }
        }
        if (result->origin == Origin::peer) ++from_peers;
      }
      answered.raise();
    });
  }
  /// The same of a part of a chunk.
  void acquire_range(PeerNodes& nodes, size_t node, FileId file, uint64_t offset, uint64_t length) {
    ++asked;
    const uint64_t within = offset % nodes.catalog->chunk_size(file);
    nodes[node].cache->acquire_range(
        file, offset, length, {}, [this, file, offset, length, within](const Result<AcquiredChunk>& result) {
          if (!result) {
            ++failed;
          } else {
            const std::string bytes = joined(result->data->block.slices(within - result->start, length));
            bool right = true;
            for (size_t i = 0; i < length; ++i)
              right = right && static_cast<unsigned char>(bytes[i]) == fake_byte(file, offset + i);
            if (!right) ++wrong;
            if (result->origin == Origin::peer) ++from_peers;
          }
          answered.raise();
        });
  }
  /// Waits until all have been answered that were asked for.
  bool await_all() const { return answered.reaches(asked); }
};

}  // namespace clairfs
