// format=tar and tfrecord with random_access.
#include <algorithm>

#include "plan/formats/dataset.h"
#include "plan/formats/index/index_store.h"
#include "plan/formats/shards/listed_records.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/shard_bytes.h"

using namespace clairfs;

namespace {

Result<std::shared_ptr<const SampleIndex>> try_shards(const DatasetSource& source, const std::string& plan) {
  INFO(plan);
  const auto spec = parse_plan("seed=1 random_access=true " + plan);
  if (!spec) return spec.error();
  return make_sample_index(*spec, source);
}

std::vector<std::string> samples_in(const DatasetSource& source, const std::string& plan) {
  const auto index = try_shards(source, plan);
  INFO((index ? "" : index.error().message));
  REQUIRE(index);
  std::vector<std::string> all;
  for (uint32_t sample = 0; sample < (*index)->size(); ++sample) {
    REQUIRE((*index)->range_count(sample) == 1);
    const ByteRange range = (*index)->range(sample, 0);
    all.push_back(source.read_bytes(range.file, range.offset, static_cast<uint32_t>(range.length)).value());
  }
  return all;
}

std::string shards_refusal(const TempTree& tree, const std::string& plan) {
  const auto index = try_shards(scanned(tree), plan);
  REQUIRE(!index);
  CHECK(index.error().code == EINVAL);
  return index.error().message;
}

/// Counts what is read of each file.
DatasetSource counted(const TempTree& tree, std::map<std::string, uint64_t>& reads) {
  DatasetSource source = scanned(tree);
  source.read_bytes = [&reads, catalog = source.catalog, read = source.read_bytes](
                          FileId file, uint64_t offset, uint32_t length) {
    ++reads[catalog->path(file)];
    return read(file, offset, length);
  };
  return source;
}

std::string frames(int count, size_t size) {
  std::string shard;
  for (int i = 0; i < count; ++i) shard += frame(std::string(size + static_cast<size_t>(i), 'a'));
  return shard;
}

/// As tfrecord2idx writes it.
std::string frame_list(int count, size_t size) {
  std::string list;
  size_t at = 0;
  for (int i = 0; i < count; ++i) {
    const size_t length = size + static_cast<size_t>(i) + 16;
    list += std::to_string(at) + " " + std::to_string(length) + "\n";
    at += length;
  }
  return list;
}

}  // namespace

TEST_CASE("shards: samples of many are counted on in the order of their paths") {
  const TempTree tree;
  std::vector<std::string> expected;
  for (int shard = 0; shard < 300; ++shard) {  // more than are walked at a time
    std::string bytes;
    for (int i = 0; i < shard % 4; ++i) {
      expected.push_back(frame(std::to_string(shard) + std::string(static_cast<size_t>(9000 * i), 'x')));
      bytes += expected.back();
    }
    char name[32] = {};
    std::snprintf(name, sizeof name, "d/%04d.tfrecord", shard);
    write_shard(tree, name, bytes);
  }
  const DatasetSource source = scanned(tree);
  CHECK(samples_in(source, "format=tfrecord") == expected);
  const auto index = try_shards(source, "root=d format=tfrecord file=*9.tfrecord").value();
  CHECK(index->format() == "tfrecord");
  CHECK(!index->is_stream());
  CHECK(index->shares_files());
  CHECK(index->read_block() == kBufferedBlock);
  CHECK(index->path(0) == "d/0009.tfrecord[0]");
}

TEST_CASE("shards: tar by pattern, by list, and all below the root") {
  const TempTree tree;
  write_shard(tree, "b.tar", tar_member("1.x", "one") + tar_end());
  write_shard(tree, "a.tar", tar_member("1.x", "two") + tar_member("3.x", "three") + tar_end());
  write_shard(tree, "other", tar_member("4.x", "four") + tar_end());
  write_shard(tree, "list", "other\na.tar\n");
  const DatasetSource source = scanned(tree);
  CHECK(samples_in(source, "format=tar") == std::vector<std::string>{"two", "three", "one"});
  CHECK(samples_in(source, "format=webdataset file=b*") == std::vector<std::string>{"one"});
  CHECK(samples_in(source, "format=tar list=list sampler=torch.sequential") ==
        std::vector<std::string>{"four", "two", "three"});
}

TEST_CASE("shards: what cannot be read at random is refused with the cause and the shard") {
  const TempTree tree;
  write_shard(tree, "a.tar", tar_member("1.x", "one") + "rest");
  write_shard(tree, "b.tar.gz", "\x1f\x8b" + std::string(1000, 'x'));
  write_shard(tree, "c.tfrecord", std::string(1000, 'x'));
  write_shard(tree, "d.tar", tar_end());
  tree.symlink("/etc/passwd", "e.tar");
  write_shard(tree, "list", "e.tar\n");
  CHECK_THAT(shards_refusal(tree, "format=tar file=a.tar"), Contains("file=a.tar: a.tar is cut off"));
  CHECK_THAT(shards_refusal(tree, "format=tar file=b.tar.gz"), Contains("b.tar.gz is compressed"));
  CHECK_THAT(shards_refusal(tree, "format=tfrecord"), Contains("format=tfrecord: c.tfrecord is no TFRecord"));
  CHECK_THAT(shards_refusal(tree, "format=tar file=d.tar"), Contains("no sample"));
  CHECK_THAT(shards_refusal(tree, "format=tar list=list sampler=torch.sequential"),
             Contains("no file of the dataset"));
  CHECK_THAT(shards_refusal(tree, "format=shards"), Contains("belongs to format=tar or tfrecord"));
  CHECK_THAT(shards_refusal(tree, "format=tar sampler=webdataset"), Contains("front to back"));
}

TEST_CASE("shards: a list beside a TFRecord file spares the walk, if it is true") {
  const TempTree tree;
  const std::string shard = frames(100, 20'000);
  write_shard(tree, "a.tfrecord", shard);
  const auto samples = samples_in(scanned(tree), "format=tfrecord");
  REQUIRE(samples.size() == 100);
  for (const char* name : {"a.idx", "a.tfrecord.idx", "a.index"}) {
    INFO(name);
    write_shard(tree, name, frame_list(100, 20'000));
    std::map<std::string, uint64_t> reads;
    const DatasetSource source = counted(tree, reads);
    CHECK(samples_in(source, "format=tfrecord") == samples);
    CHECK(reads["a.tfrecord"] == 32 + samples.size());
    CHECK(reads[name] == 1);
    const auto index = try_shards(source, "format=tfrecord").value();
    REQUIRE(index->shared_ranges().size() == 1);
    CHECK(source.catalog->path(index->shared_ranges()[0].file) == name);
    std::filesystem::remove(tree.at(name));
  }
  // Of another shard; with a gap; too short; of any other kind.
  std::string gap = frame_list(100, 20'000);
  gap.erase(0, gap.find('\n') + 1);
  const std::string moved = "0 20015\n20015 20018\n" + frame_list(100, 20'000).substr(20);
  for (const std::string& list : {frame_list(100, 19'999) + "2006450 100\n", gap, frame_list(99, 20'000),
                                  std::string("v1.2 3\n"), std::string("\xff\0", 2), std::string(), moved}) {
    write_shard(tree, "a.idx", list);
    std::map<std::string, uint64_t> reads;
    const DatasetSource source = counted(tree, reads);
    CHECK(samples_in(source, "format=tfrecord") == samples);
    CHECK(reads["a.tfrecord"] >= 100 + samples.size());
    CHECK(try_shards(source, "format=tfrecord").value()->shared_ranges().empty());
  }
  // Nobody may read it.
  write_shard(tree, "a.idx", frame_list(100, 20'000));
  DatasetSource source = scanned(tree);
  source.read_bytes = [catalog = source.catalog, read = source.read_bytes](
                          FileId file, uint64_t offset, uint32_t length) -> Result<std::string> {
    if (catalog->path(file) == "a.idx") return Error{EACCES, "open: Permission denied"};
    return read(file, offset, length);
  };
  CHECK(samples_in(source, "format=tfrecord") == samples);
}

TEST_CASE("shards: a list beside a tar spares the walk, if it is true") {
  const TempTree tree;
  const std::string long_name(150, 'n');
  const std::string shard = tar_member("a.jpg", std::string(3000, 'a')) + tar_member("a.cls", "1") +
                            tar_member("././@LongLink", long_name + ".x" + '\0', 'L') +
                            tar_header(long_name, octal(5)) + padded("bytes");
  const size_t end = shard.size();
  write_shard(tree, "t.tar", shard + tar_end());
  const auto samples = samples_in(scanned(tree), "format=tar");
  REQUIRE(samples.size() == 2);
  const auto list = [&](size_t first, size_t size, const char* name) {
    return "v1.2 2\njpg " + std::to_string(first) + " " + std::to_string(size) + " " + name +
           " cls 4096 1 a.cls\nx " + std::to_string(end - 512) + " 5 " + long_name + ".x\n";
  };
  const auto reads_with = [&](const std::string& text) {
    write_shard(tree, "t.idx", text);
    std::map<std::string, uint64_t> reads;
    const DatasetSource source = counted(tree, reads);
    CHECK(samples_in(source, "format=tar") == samples);
    const uint64_t of_index = reads["t.tar"] - samples.size();
    return std::pair(of_index, try_shards(source, "format=tar").value()->shared_ranges().size());
  };
  CHECK(reads_with(list(512, 3000, "a.jpg")) == std::pair(uint64_t{4}, size_t{1}));
  for (const std::string& wrong :
       {list(512, 2999, "a.jpg"), list(512, 3000, "b.jpg"), list(0, 3000, "a.jpg"), list(513, 3000, "a.jpg"),
        list(512, 3585, "a.jpg"), std::string("v1.2 0\n"), std::string("v1.1 1\njpg 512 3000\n"),
        std::string("v1.2 1\njpg 512 3000 a.jpg cls 4096 1 a.cls\n"),
        std::string("v1.2 1\njpg 18446744073709551615 18446744073709551615 a.jpg\n")}) {
    INFO(wrong);
    CHECK(reads_with(wrong).second == 0);
  }
}

TEST_CASE("shards: the index is kept, and made anew with another list beside the shard") {
  const TempTree tree;
  const TempTree saved;
  write_shard(tree, "a.tfrecord", frames(40, 20'000));
  CapturedLog log;
  std::map<std::string, uint64_t> reads;
  const auto samples = [&] {
    IndexStore store(saved.at("index"), log.logger());
    DatasetSource source = counted(tree, reads);
    source.indexes = &store;
    return samples_in(source, "format=tfrecord");
  };
  const auto first = samples();
  const uint64_t walked = reads["a.tfrecord"] - first.size();
  CHECK(walked >= 40);
  CHECK(samples() == first);
  CHECK(reads["a.tfrecord"] == walked + 2 * first.size());
  write_shard(tree, "a.idx", frame_list(40, 20'000));
  CHECK(samples() == first);
  CHECK(reads["a.tfrecord"] == walked + 3 * first.size() + 32);
}
