#include "plan/formats/streams/stripes.h"

#include <cerrno>

#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint64_t kMiB = 1 << 20;

using Paths = std::vector<std::string>;
using Numbers = std::vector<uint32_t>;

std::shared_ptr<const SampleIndex> index_of(const DatasetSource& source, const std::string& plan) {
  INFO(plan);
  const auto index = make_sample_index(parse_plan("seed=1 " + plan).value(), source);
  if (!index) FAIL(index.error().message);
  return *index;
}

std::shared_ptr<const SampleIndex> stripes_of(const std::vector<uint64_t>& sizes, uint32_t chunk) {
  DatasetSource source;
  source.catalog = made_up_catalog(sizes, chunk);
  return index_of(source, "format=shards");
}

Numbers samples_at(const SampleIndex& index, FileId file, uint64_t offset, uint64_t length) {
  Numbers found;
  index.samples_of(file, offset, length, [&](uint32_t sample) { found.push_back(sample); });
  return found;
}

}  // namespace

TEST_CASE("stripes have every byte of every shard once, and no chunk in common") {
  const uint32_t chunk = GENERATE(64U << 10, 96U << 10, 1U << 20, 3U << 20, 4U << 20);
  const uint64_t stripe = chunk >= kMiB ? chunk : (kMiB + chunk - 1) / chunk * chunk;
  CAPTURE(chunk, stripe);
  const std::vector<uint64_t> sizes{0,          1,          4096,           stripe - 1,
                                    stripe,     stripe + 1, 3 * stripe,     3 * stripe + 5000,
                                    stripe / 2, 0,          10 * stripe - 1};
  const auto index = stripes_of(sizes, chunk);
  const auto catalog = made_up_catalog(sizes, chunk);
  CHECK(index->is_stream());
  CHECK(index->shares_files());
  CHECK(index->numbered().size() == sizes.size());
  uint32_t next = 0;
  std::vector<uint32_t> users(catalog->chunk_count(), UINT32_MAX);
  for (uint32_t shard = 0; shard < sizes.size(); ++shard) {
    const auto [first, end] = index->parts(shard);
    CHECK(first == next);
    next = end;
    uint64_t at = 0;
    for (uint32_t sample = first; sample < end; ++sample) {
      REQUIRE(index->range_count(sample) == 1);
      const ByteRange range = index->range(sample, 0);
      CHECK(range.file == FileId(shard + 1));
      CHECK(range.offset == at);
      CHECK(range.length == std::min(stripe, sizes[shard] - at));
      at += range.length;
      for_each_chunk(*index, *catalog, sample, [&](ChunkId id) {
        CHECK(users[id.index()] == UINT32_MAX);
        users[id.index()] = sample;
      });
    }
    CHECK(at == sizes[shard]);
  }
  CHECK(next == index->size());
}

TEST_CASE("a READ tells of the stripes that it has bytes of, the first one first") {
  const auto index = stripes_of({3 * kMiB, 0, 2 * kMiB + 7}, 1 << 20);
  const FileId first(1), empty(2), last(3);
  CHECK(samples_at(*index, first, 0, 4096) == Numbers{0});
  CHECK(samples_at(*index, first, kMiB - 4096, 4096) == Numbers{0});
  CHECK(samples_at(*index, first, kMiB - 4096, 8192) == Numbers{0, 1});
  CHECK(samples_at(*index, first, 0, 3 * kMiB) == Numbers{0, 1, 2});
  CHECK(samples_at(*index, last, 2 * kMiB, 7) == Numbers{5});
  CHECK(samples_at(*index, last, 2 * kMiB, kMiB) == Numbers{5});  // beyond the end there is none
  CHECK(samples_at(*index, last, 9 * kMiB, 1).empty());
  CHECK(samples_at(*index, empty, 0, 4096).empty());
  CHECK(samples_at(*index, first, 0, 0).empty());  // an open
  CHECK(index->path(4) == "f10002[1]");
}

TEST_CASE("shards are found by the names of their format, by a pattern, or by a list") {
  const TempTree tree;
  for (const char* path : {"b/2.tar", "b/10.tar", "a.tar.gz", "a.tgz", "a.tar.zst", "a.tar.idx", "tar",
                           ".x.tar", "t/x.tfrecord", "t/x.tfrecord-00000-of-00002", "t/x.tfrecord.idx",
                           "t/x.tfrecord-00000-of-00002.idx", "t/x.tfrecord-00000-of-00002.index",
                           "t/y.tfrec", "t/z.tfrecords.gz", "p/train-00000", "p/train-00001", "p/.part"})
    tree.write(path, 10);
  tree.symlink("b/2.tar", "link.tar");
  const DatasetSource source = scanned(tree);
  const auto names = [&](const std::string& plan) {
    return sample_paths(index_of(source, plan)->numbered());
  };
  CHECK(names("format=tar") == Paths{"a.tar.gz", "a.tar.zst", "a.tgz", "b/10.tar", "b/2.tar"});
  CHECK(names("format=WebDataset") == names("format=tar"));
  CHECK(names("format=tar root=b") == Paths{"b/10.tar", "b/2.tar"});
  CHECK(names("format=tfrecord") ==
        Paths{"t/x.tfrecord", "t/x.tfrecord-00000-of-00002", "t/y.tfrec", "t/z.tfrecords.gz"});
  CHECK(names("format=shards root=p") == Paths{"p/train-00000", "p/train-00001"});
  CHECK(names("format=shards file=*/train-*") == Paths{"p/train-00000", "p/train-00001"});
  CHECK(names("format=tar file=p/train-0000?") == Paths{"p/train-00000", "p/train-00001"});
  const Paths listed{"b/2.tar", "p/train-00001", "b/10.tar"};
  std::ofstream(tree.at("list")) << "b/2.tar\np/train-00001\nlink.tar\nb/10.tar\n";
  const auto by_list = index_of(source, "format=tar list=list sampler=torch.distributed");
  CHECK(by_list->numbered().size() == 4);
  CHECK(by_list->size() == 4);
  // Without a sampler a list is the order: paths of shards, epoch by epoch.
  CHECK(names("format=tar list=list") == names("format=tar"));
  CHECK(index_of(source, "format=tar n=5")->numbered().size() == 5);

  const auto refusal = [&](const std::string& plan) {
    const auto index = make_sample_index(parse_plan("seed=1 " + plan).value(), source);
    REQUIRE(!index);
    CHECK(index.error().code == EINVAL);
    return index.error().message;
  };
  CHECK(refusal("format=tfrecord root=b").find("*.tfrec") != std::string::npos);
  CHECK(refusal("format=tar file=none*").find("none*") != std::string::npos);
  CHECK(refusal("format=tar n=4").find("5 shards") != std::string::npos);
  CHECK(!parse_plan("seed=1 format=tar file=a list=list sampler=torch.distributed"));
}
