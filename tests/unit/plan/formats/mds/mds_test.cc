#include <algorithm>
#include <fstream>

#include "plan/formats/dataset.h"
#include "plan/sequence/plan_sampler.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

std::string u32(uint32_t number) {
  std::string bytes;
  for (int i = 0; i < 4; ++i) bytes += static_cast<char>(number >> (8 * i));
  return bytes;
}

/// A shard as MDSWriter writes it: count, offsets, a description of the columns, the samples.
std::string mds_shard(const std::vector<std::string>& samples, const std::string& columns = "{columns}") {
  std::string table = u32(static_cast<uint32_t>(samples.size()));
  std::string data = columns;
  const auto head = static_cast<uint32_t>(4 * (samples.size() + 2));
  for (const std::string& sample : samples) {
    table += u32(head + static_cast<uint32_t>(data.size()));
    data += sample;
  }
  return table + u32(head + static_cast<uint32_t>(data.size())) + data;
}

std::string in_index(const std::string& basename, size_t samples, const std::string& more = "") {
  return R"({"format": "mds", "samples": )" + std::to_string(samples) + R"(, "raw_data": {"basename": ")" +
         basename + R"("}, "compression": null)" + more + "}";
}

void write_text(const TempTree& tree, const std::string& path, const std::string& text) {
  tree.write(path, 0);
  std::ofstream(tree.at(path), std::ios::binary) << text;
}

/// Two shards, of three and two samples, below `folder`.
void write_dataset(const TempTree& tree, const std::string& folder = "") {
  write_text(tree, folder + "index.json",
             R"({"version": 2, "shards": [)" + in_index("shard.00000.mds", 3) + "," +
                 in_index("shard.00001.mds", 2) + "]}");
  write_text(tree, folder + "shard.00000.mds", mds_shard({"one", "", "three"}));
  write_text(tree, folder + "shard.00001.mds", mds_shard({"four", "5"}));
}

std::string mds_refusal(const TempTree& tree) {
  const DatasetSource source = scanned(tree);
  const auto index = make_sample_index(parse_plan("seed=1 format=mds").value(), source);
  REQUIRE(!index);
  CHECK(index.error().code == EINVAL);
  return index.error().message;
}

}  // namespace

TEST_CASE("mds: samples where the shards' tables say they are") {
  const TempTree tree;
  write_dataset(tree, "train/");
  const DatasetSource source = scanned(tree);
  for (const char* plan : {"seed=1 root=train format=mds", "seed=1 format=mds file=train/index.json",
                           "seed=1 file=train/index.json"}) {
    INFO(plan);
    const auto index = make_sample_index(parse_plan(plan).value(), source);
    INFO((index ? "" : index.error().message));
    REQUIRE(index);
    CHECK((*index)->format() == "mds");
    REQUIRE((*index)->size() == 5);
    std::string bytes;
    for (uint32_t sample = 0; sample < 5; ++sample) {
      REQUIRE((*index)->range_count(sample) == 1);
      const ByteRange range = (*index)->range(sample, 0);
      bytes += source.read_bytes(range.file, range.offset, static_cast<uint32_t>(range.length)).value() + "|";
    }
    CHECK(bytes == "one||three|four|5|");
    std::vector<std::string> shared;
    for (const ByteRange& range : (*index)->shared_ranges()) {
      shared.push_back(source.catalog->path(range.file) + "+" + std::to_string(range.length));
    }
    CHECK(shared.size() == 3);  // index.json, and both tables
    CHECK(std::ranges::count(shared, "train/shard.00000.mds+20") == 1);
    CHECK(std::ranges::count(shared, "train/shard.00001.mds+16") == 1);
  }
}

TEST_CASE("mds: the samples of several streams count on from one to the next") {
  const TempTree tree;
  write_dataset(tree, "b/");
  write_dataset(tree, "a/");
  write_text(tree, "a/shard.00001.mds", mds_shard({"4", "five"}));
  write_text(tree, "x,y/index.json", R"({"shards": [)" + in_index("s.mds", 1) + "]}");
  write_text(tree, "x,y/s.mds", mds_shard({"last"}));
  const DatasetSource source = scanned(tree);
  const PlanSpec spec =
      resolve_plan(
          parse_plan("file=b/index.json,a/index.json,x,y/index.json sampler=streaming shuffle_algo=py1s "
                     "num_canonical_nodes=1")
              .value(),
          1)
          .value();
  CHECK(spec.format == "mds");
  const auto index = make_sample_index(spec, source);
  INFO((index ? "" : index.error().message));
  REQUIRE(index);
  std::string bytes;
  for (uint32_t sample = 0; sample < (*index)->size(); ++sample) {
    const ByteRange range = (*index)->range(sample, 0);
    bytes += source.read_bytes(range.file, range.offset, static_cast<uint32_t>(range.length)).value() + "|";
  }
  CHECK(bytes == "one||three|four|5|one||three|4|five|last|");
  CHECK((*index)->shared_ranges().size() == 8);
  // The shuffle sees the shards of all streams.
  auto sampler = make_plan_sampler(spec, (*index)->size(), source, index->get());
  REQUIRE(sampler);
  PlanSpec told = spec;
  told.shard_sizes = "[3,2,3,2,1]";
  auto with_sizes = make_plan_sampler(told, (*index)->size(), source, index->get());
  REQUIRE(with_sizes);
  CHECK(indices_of(**sampler, 1) == indices_of(**with_sizes, 1));
  const auto missing = make_sample_index(parse_plan("seed=1 file=b/index.json,c/index.json").value(), source);
  REQUIRE(!missing);
  CHECK_THAT(missing.error().message, Contains("file=c/index.json"));
}

TEST_CASE("mds: a StreamingDataset is told the shards' samples by the files themselves") {
  const TempTree tree;
  write_dataset(tree);
  const DatasetSource source = scanned(tree);
  const auto plan = [&](const std::string& more) {
    const PlanSpec spec =
        resolve_plan(parse_plan("format=mds sampler=StreamingDataset shuffle_algo=py1s " + more).value(), 1)
            .value();
    const auto index = make_sample_index(spec, source);
    REQUIRE(index);
    auto sampler = make_plan_sampler(spec, (*index)->size(), source, index->get());
    INFO((sampler ? "" : sampler.error().message));
    REQUIRE(sampler);
    return indices_of(**sampler, 1);
  };
  const auto expected = plan("num_canonical_nodes=1 shard_sizes=[3,2]");
  CHECK(plan("num_canonical_nodes=1") == expected);
  write_text(tree, "sizes", "3\n2\n");
  CHECK(plan("num_canonical_nodes=1 shard_sizes=sizes") == expected);
  CHECK(plan("num_canonical_nodes=1 shard_sizes=index.json") == expected);
}

TEST_CASE("mds: a shard that is named twice is refused") {
  const TempTree tree;
  write_dataset(tree);
  const std::string shard = in_index("shard.00000.mds", 3);
  write_text(tree, "index.json",
             R"({"shards": [)" + shard + "," + in_index("shard.00001.mds", 2) + "," + shard + "]}");
  CHECK_THAT(mds_refusal(tree), Contains("shard.00000.mds") && Contains("is named twice"));
  write_dataset(tree);
  const auto twice =
      make_sample_index(parse_plan("seed=1 format=mds file=index.json,index.json").value(), scanned(tree));
  REQUIRE(!twice);
  CHECK_THAT(twice.error().message, Contains("is named twice"));
}

TEST_CASE("mds: what cannot be planned is refused with the cause") {
  const TempTree tree;
  CHECK(mds_refusal(tree).find("index.json") != std::string::npos);
  write_dataset(tree);
  const auto with_index = [&](const std::string& shards) {
    write_text(tree, "index.json", R"({"shards": [)" + shards + "]}");
    return mds_refusal(tree);
  };
  CHECK(with_index(in_index("shard.00000.mds", 4)).find("not as many samples") != std::string::npos);
  CHECK(with_index(in_index("shard.00007.mds", 4)).find("is not there") != std::string::npos);
  CHECK(with_index(in_index("../../etc/passwd", 1)).find("passwd") != std::string::npos);
  CHECK(with_index(in_index("shard.00000.mds", 4000000000)).find("is cut off") != std::string::npos);
  CHECK(with_index(in_index("shard.00000.mds", 0)).find("no sample") != std::string::npos);
  CHECK(with_index(R"({"samples": 3, "format": "json", "raw_data": {"basename": "shard.00000.mds"}})")
            .find("format=list") != std::string::npos);
  CHECK(with_index(
            R"({"samples": 3, "format": "mds", "compression": "zstd", "raw_data": {"basename": "s.mds"}})")
            .find("compressed") != std::string::npos);
  write_text(tree, "shard.00000.mds", u32(3) + u32(20) + u32(90) + u32(30) + u32(40) + std::string(80, 'x'));
  CHECK(with_index(in_index("shard.00000.mds", 3)).find("is damaged") != std::string::npos);
  write_text(tree, "shard.00000.mds", u32(1) + u32(12) + u32(5000));
  CHECK(with_index(in_index("shard.00000.mds", 1)).find("shard.00000.mds") != std::string::npos);
}
