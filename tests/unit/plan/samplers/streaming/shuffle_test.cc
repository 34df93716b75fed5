#include "plan/samplers/streaming/shuffle.h"

#include <map>

#include "tests/support/catch.h"
#include "tests/support/golden.h"

using namespace clairfs;

TEST_CASE("StreamingDataset's shuffles: every algorithm, shard size, node count, epoch and block") {
  std::map<std::string, size_t> checked;
  for (const auto& test : golden::cases("streaming")) {
    const golden::Json& params = test.at("params");
    if (params.at("kind") != "shuffle") continue;
    INFO(test.at("id"));
    const std::string name = params.at("algo");
    const StreamingShuffle shuffle{.algorithm = parse_streaming_algorithm(name).value(),
                                   .shard_sizes = params.at("shard_sizes"),
                                   .canonical_nodes = params.at("num_canonical_nodes"),
                                   .seed = BigInteger::parse(params.at("seed").get<std::string>()).value(),
                                   .block_size = params.at("block_size")};
    CHECK(golden::same_sequence(test.at("result").at("ids"),
                                streaming_shuffle(shuffle, Epoch(params.at("epoch").get<uint32_t>()))));
    ++checked[name];
  }
  CHECK(checked == std::map<std::string, size_t>{
                       {"naive", 27}, {"py1b", 54}, {"py1br", 54}, {"py1e", 54}, {"py1s", 27}, {"py2s", 27}});
}

TEST_CASE("an algorithm that Streaming does not have") {
  CHECK_FALSE(parse_streaming_algorithm("py3s"));
  CHECK_FALSE(parse_streaming_algorithm(""));
}
