#include "plan/placement/job_uses.h"

#include <map>
#include <random>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/made_up_job.h"

using namespace clairfs;

namespace {

/// The same by plain counting.
struct Counted {
  void add(const EpochSequence& sequence, const SampleIndex& index, const Catalog& catalog, NodeId node) {
    for (uint32_t p = sequence.first_position(); p < sequence.length(); ++p) {
      std::optional<ChunkId> before;
      for_each_chunk(index, catalog, sequence.sample_at(p), [&](ChunkId chunk) {
        if (chunk == before) return;
        before = chunk;
        ++uses[{chunk, node}];
        const auto at = first.try_emplace(chunk, base + p).first;
        at->second = std::min(at->second, base + p);
      });
    }
    longest = std::max<uint64_t>(longest, sequence.length());
  }
  void end_epoch() {
    base += longest;
    longest = 0;
  }
  void check(const JobUses& job, uint32_t nodes, uint32_t chunks) const {
    for (uint32_t c = 0; c < chunks; ++c) {
      std::map<NodeId, uint32_t> visited;
      uint32_t total = 0;
      job.for_each_use(ChunkId(c), [&](NodeId node, uint32_t count) { visited[node] += count; });
      for (uint32_t node = 0; node < nodes; ++node) {
        const auto found = uses.find({ChunkId(c), NodeId(node)});
        const uint32_t expected = found == uses.end() ? 0 : found->second;
        total += expected;
        INFO("chunk " << c << " node " << node);
        CHECK(job.uses(ChunkId(c), NodeId(node)) == expected);
        CHECK(visited[NodeId(node)] == expected);
        CHECK(job.uses_of(NodeId(node))[c] == expected);
      }
      CHECK(job.total(ChunkId(c)) == total);
    }
    for (const auto& [chunk, position] : first) CHECK(job.first_use(chunk) == position);
  }

  std::map<std::pair<ChunkId, NodeId>, uint32_t> uses;
  std::map<ChunkId, uint64_t> first;
  uint64_t base = 0;
  uint64_t longest = 0;
};

}  // namespace

TEST_CASE("uses agree with plain counting, whatever the sampler and the samples") {
  const TempTree tree;
  std::mt19937 random(3);
  for (int file = 0; file < 40; ++file) tree.write("f" + std::to_string(file), random() % 12000);
  const DatasetSource source = scanned(tree, GENERATE(4096, 1 << 20));
  const auto files = make_sample_index(*parse_plan("seed=1 format=files"), source);
  std::ofstream list(tree.at("list"));
  for (int sample = 0; sample < 120; ++sample) list << "f" << sample % 40 << "\n";
  list.close();
  const auto thrice = make_sample_index(*parse_plan("seed=1 format=list list=list"), source);
  REQUIRE(files);
  REQUIRE(thrice);
  constexpr uint32_t kNodes = 3;
  JobUses job(*source.catalog, kNodes);
  Counted counted;
  // Two plans, one after the other. Nodes draw with replacement, so that they meet in chunks and come back.
  for (const SampleIndex* index : {files->get(), thrice->get()}) {
    for (uint32_t epoch = 0; epoch < 4; ++epoch) {
      for (uint32_t node = 0; node < kNodes; ++node) {
        std::vector<uint32_t> samples(index->size() / (node + 1));
        for (uint32_t& sample : samples) sample = static_cast<uint32_t>(random() % index->size());
        const EpochSequence sequence(Epoch(epoch), std::move(samples), epoch == 0 ? 5 : 0);
        job.add(sequence, *index, NodeId(node));
        counted.add(sequence, *index, *source.catalog, NodeId(node));
      }
      counted.end_epoch();
      if (epoch == 2)
        counted.check(job, kNodes, source.catalog->chunk_count());  // between two calls of add()
    }
  }
  counted.check(job, kNodes, source.catalog->chunk_count());
  job.finish();
  counted.check(job, kNodes, source.catalog->chunk_count());
}

TEST_CASE("uses of a shuffled job, one chunk a sample and several") {
  for (const uint32_t chunk_size : {4096U, 1U << 20}) {
    const MadeUpJob job(std::vector<uint64_t>(100, 6000), chunk_size, 7, 3, "seed=4 batch=2");
    Counted counted;
    for (const auto& epoch : job.sequences) {
      for (uint32_t node = 0; node < job.nodes; ++node) {
        counted.add(*epoch[node], job.index, *job.catalog, NodeId(node));
      }
      counted.end_epoch();
    }
    counted.check(job.uses(), job.nodes, job.catalog->chunk_count());
  }
}

TEST_CASE("nodes that the job does not have are left out") {
  const MadeUpJob job({5000, 6000}, 1 << 20, 1, 1, "seed=4");
  JobUses uses = job.uses();
  uses.add(*job.sequences[0][0], job.index, NodeId(1));
  CHECK(uses.total(ChunkId(0)) == 1);
}
