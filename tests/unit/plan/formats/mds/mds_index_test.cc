#include "plan/formats/mds/mds_index.h"

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::string shard_of(const std::string& members) {
  return R"({"version": 2, "shards": [{)" + members + "}]}";
}

std::string index_refusal(const std::string& text) {
  const auto parsed = parse_mds_index(text);
  REQUIRE(!parsed);
  return parsed.error().message;
}

}  // namespace

TEST_CASE("index.json as MDSWriter writes it") {
  const auto parsed = parse_mds_index(
      R"({"shards": [{"column_encodings": ["int", "jpeg"], "column_names": ["class", "image"],)"
      R"( "column_sizes": [8, null], "compression": null, "format": "mds", "hashes": [],)"
      R"( "raw_data": {"basename": "shard.00000.mds", "bytes": 67092637, "hashes": {}}, "samples": 608,)"
      R"( "size_limit": 67108864, "version": 2, "zip_data": null},)"
      R"( {"compression": "zstd:7", "format": "mds", "raw_data": {"basename": "shard.00001.mds", "bytes": 5,)"
      R"( "hashes": {}}, "samples": 3, "version": 2, "zip_data": {"basename": "shard.00001.mds.zstd"}}],)"
      R"( "version": 2})");
  REQUIRE(parsed);
  REQUIRE(parsed->size() == 2);
  CHECK((*parsed)[0].basename == "shard.00000.mds");
  CHECK((*parsed)[0].format == "mds");
  CHECK((*parsed)[0].samples == 608);
  CHECK_FALSE((*parsed)[0].compressed);
  CHECK((*parsed)[1].compressed);
  CHECK(mds_shard_sizes(*parsed).value() == std::vector<uint32_t>{608, 3});
}

TEST_CASE("an index.json that is none") {
  for (const char* text :
       {"", "[]", "{", "{}", R"({"shards": {}})", R"({"shards": []})", R"({"shards": [1]})"}) {
    INFO(text);
    CHECK(index_refusal(text).starts_with("index.json:"));
  }
  for (const char* samples : {R"("samples": -1)", R"("samples": 1.5)", R"("samples": "3")",
                              R"("samples": 4294967296)", R"("version": 2)"}) {
    INFO(samples);
    CHECK(index_refusal(shard_of(samples)).find("shard 0") != std::string::npos);
  }
  CHECK(index_refusal(std::string(100000, '[')).starts_with("index.json:"));
  CHECK(index_refusal(shard_of(R"("samples": 1, "x": [[[[[[[[[[1]]]]]]]]]])")).starts_with("index.json:"));
}

TEST_CASE("shards without samples, or with more than there are numbers") {
  CHECK_FALSE(mds_shard_sizes({{.samples = 3}, {.samples = 0}}));
  CHECK_FALSE(mds_shard_sizes({{.samples = 4000000000}, {.samples = 300000000}}));
}
