#include "plan/sequence/epoch_uses.h"

#include <random>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

std::shared_ptr<const SequencePositions> positions_of(std::vector<uint32_t> samples, uint32_t first = 0) {
  return std::make_shared<const SequencePositions>(
      std::make_shared<const EpochSequence>(Epoch(3), std::move(samples), first));
}

}  // namespace

TEST_CASE("every use of every chunk, by position") {
  const TempTree tree;
  tree.write("a", 5000);  // chunks 0 and 1
  tree.write("b", 10);
  tree.write("c", 0);
  tree.write("d", 9000);
  const DatasetSource source = scanned(tree);
  const auto index = make_sample_index(*parse_plan("seed=1"), source);
  REQUIRE(index);
  auto samples = ChunkSamples::make(**index, *source.catalog);
  REQUIRE(samples);
  CHECK(samples->of(ChunkId(1)) == 0);
  CHECK(samples->of(ChunkId(2)) == 1);
  if (GENERATE(false, true)) samples = nullptr;
  const EpochUses uses(positions_of({1, 2, 0, 1, 0, 3}), samples, **index, *source.catalog);
  CHECK(uses.epoch() == Epoch(3));
  CHECK(uses.next_use(ChunkId(0), 0) == 2U);
  CHECK(uses.next_use(ChunkId(1), 3) == 4U);
  CHECK(uses.next_use(ChunkId(1), 4) == 4U);
  CHECK(uses.next_use(ChunkId(1), 5) == std::nullopt);
  CHECK(uses.first_use(ChunkId(2)) == 0U);
  CHECK(uses.next_use(ChunkId(2), 1) == 3U);
  CHECK(uses.uses(ChunkId(5)).size() == 1);
  const EpochUses resumed(positions_of({1, 2, 0, 1, 0}, 3), samples, **index, *source.catalog);
  CHECK(resumed.first_use(ChunkId(2)) == 3U);
  CHECK(resumed.first_use(ChunkId(0)) == 4U);
  CHECK(resumed.first_use(ChunkId(3)) == std::nullopt);
}

TEST_CASE("uses agree with a plain walk, for files and for rows") {
  const TempTree tree;
  std::mt19937 random(2);
  for (int file = 0; file < 40; ++file) tree.write("f" + std::to_string(file), random() % 12000);
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (700, 21), }";
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header;
  bytes.resize(bytes.size() + 700 * 84);
  std::ofstream(tree.at("x.npy"), std::ios::binary) << bytes;
  const DatasetSource source = scanned(tree);
  for (const char* plan : {"seed=1 format=files", "seed=1 file=x.npy"}) {
    INFO(plan);
    const auto index = make_sample_index(*parse_plan(plan), source);
    REQUIRE(index);
    std::vector<uint32_t> samples;
    for (uint32_t i = 0; i < 900; ++i) samples.push_back(random() % (*index)->size());
    const auto positions = positions_of(samples, 100);
    const auto known = ChunkSamples::make(**index, *source.catalog);
    CHECK(static_cast<bool>(known) == ((*index)->format() == "files"));  // rows share chunks
    const EpochUses uses(positions, nullptr, **index, *source.catalog);
    const EpochUses derived(positions, known, **index, *source.catalog);
    std::vector<std::vector<uint32_t>> expected(source.catalog->chunk_count());
    for (uint32_t p = 100; p < samples.size(); ++p) {
      for_each_chunk(**index, *source.catalog, samples[p],
                     [&](ChunkId chunk) { expected[chunk.index()].push_back(p); });
    }
    for (uint32_t chunk = 0; chunk < expected.size(); ++chunk) {
      const auto found = uses.uses(ChunkId(chunk));
      CHECK(std::vector<uint32_t>(found.begin(), found.end()) == expected[chunk]);
      const auto same = derived.uses(ChunkId(chunk));
      CHECK(std::vector<uint32_t>(same.begin(), same.end()) == expected[chunk]);
    }
    if (known) CHECK(derived.memory_bytes() == sizeof(EpochUses));
    CHECK(uses.memory_bytes() < 4 * (3 * 900 + expected.size() + 50) + 100);

    // And the inverse of the order itself.
    for (uint32_t sample = 0; sample < (*index)->size() + 2; ++sample) {
      std::vector<uint32_t> at;
      for (uint32_t p = 0; p < samples.size(); ++p) {
        if (samples[p] == sample) at.push_back(p);
      }
      const auto found = positions->of(sample);
      CHECK(std::vector<uint32_t>(found.begin(), found.end()) == at);
    }
  }
}

TEST_CASE("which samples a read belongs to") {
  const TempTree tree;
  for (const char* path : {"c/a.jpg", "c/b.jpg", "d/x.jpg"}) tree.write(path, 100);
  tree.symlink("../d/x.jpg", "c/link.jpg");
  tree.symlink("nowhere", "c/zz.jpg");
  std::ofstream(tree.at("order")) << "d/x.jpg\nc/b.jpg\nd/x.jpg\n";
  const DatasetSource source = scanned(tree);
  const auto samples = [&](const std::string& plan, const std::string& path, uint64_t offset = 0,
                           uint64_t length = UINT64_MAX) {
    const auto index = make_sample_index(*parse_plan("seed=1 " + plan), source);
    if (!index) FAIL(index.error().message);
    std::vector<uint32_t> found;
    (*index)->samples_of(*source.catalog->find(path), offset, length,
                         [&](uint32_t s) { found.push_back(s); });
    return found;
  };
  using Samples = std::vector<uint32_t>;
  // a, b, link, zz of c, then x of d
  CHECK(samples("format=imagefolder", "c/a.jpg") == Samples{0});
  CHECK(samples("format=imagefolder", "d/x.jpg") == Samples{2, 4});
  CHECK(samples("format=imagefolder", "order").empty());
  CHECK(samples("format=list list=order", "d/x.jpg") == Samples{0, 2});
  CHECK(samples("format=list list=order", "c/b.jpg", 50, 1) == Samples{1});
  CHECK(samples("format=list list=order", "c/a.jpg").empty());
  CHECK(samples("format=files", "c/b.jpg") == Samples{1});

  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000, 15), }";
  std::string bytes = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header;
  const size_t start = bytes.size();
  bytes.resize(start + 1000 * 60);
  std::ofstream(tree.at("x.npy"), std::ios::binary) << bytes;
  const DatasetSource packed = scanned(tree);
  const auto index = make_sample_index(*parse_plan("seed=1 file=x.npy"), packed);
  REQUIRE(index);
  const auto rows = [&](uint64_t offset, uint64_t length) {
    Samples found;
    (*index)->samples_of(*packed.catalog->find("x.npy"), offset, length,
                         [&](uint32_t row) { found.push_back(row); });
    return found;
  };
  CHECK(rows(0, start).empty());
  CHECK(rows(0, start + 1) == Samples{0});
  CHECK(rows(start + 60, 60) == Samples{1});
  CHECK(rows(start + 59, 2) == Samples{0, 1});
  CHECK(rows(start + 999 * 60 + 59, 100) == Samples{999});
  CHECK(rows(start + 1000 * 60, 100).empty());
  CHECK(rows(start, 0).empty());
  CHECK(rows(0, UINT64_MAX).size() == 1000);
  Samples other;
  (*index)->samples_of(*packed.catalog->find("order"), 0, 100, [&](uint32_t row) { other.push_back(row); });
  CHECK(other.empty());
}
