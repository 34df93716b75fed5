#include "plan/sequence/shard_streams.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "plan/formats/streams/stripes.h"
#include "plan/sequence/access_sequence.h"
#include "plan/sequence/plan_sampler.h"
#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint64_t kMiB = 1 << 20;
using Numbers = std::vector<uint32_t>;

/// A plan over shards of so many MiB, which are so many stripes.
struct Fixture {
  Fixture(const std::vector<uint64_t>& mebibytes, const std::string& plan, uint32_t nodes = 1)
      : sequence(make(mebibytes, plan, nodes)) {}

  AccessSequence make(const std::vector<uint64_t>& mebibytes, const std::string& plan, uint32_t nodes) {
    INFO(plan);
    std::vector<uint64_t> sizes;
    for (const uint64_t size : mebibytes) sizes.push_back(size * kMiB);
    source.catalog = made_up_catalog(sizes, 1 << 20);
    const PlanSpec spec = resolve_plan(parse_plan("format=shards " + plan).value(), nodes).value();
    index = make_sample_index(spec, source).value();
    auto sampler = make_plan_sampler(spec, index->numbered().size(), source, &index->numbered());
    if (!sampler) FAIL(sampler.error().message);
    return std::move(AccessSequence::make(spec, std::move(*sampler), index).value());
  }

  Numbers reader(uint32_t number, uint32_t epoch = 0, uint32_t node = 0) {
    const auto order = sequence.order(Epoch(epoch)).value();
    const auto made = sequence.reader_sequence(order, Epoch(epoch), NodeId(node), number);
    return {made.samples().begin(), made.samples().end()};
  }
  Numbers node(uint32_t number, uint32_t epoch = 0) {
    const auto made = sequence.sequence(Epoch(epoch), NodeId(number)).value();
    return {made.samples().begin(), made.samples().end()};
  }
  /// The stripes of these shards, one after the other.
  Numbers stripes(const Numbers& shards) const {
    Numbers all;
    for (const uint32_t shard : shards) {
      for (uint32_t s = index->parts(shard).first; s < index->parts(shard).end; ++s) all.push_back(s);
    }
    return all;
  }

  DatasetSource source;
  std::shared_ptr<const SampleIndex> index;
  AccessSequence sequence;
};

}  // namespace

TEST_CASE("each worker's shards are an order by itself") {
  Fixture f({2, 3, 1, 4, 2}, "shuffle=false workers=2");
  REQUIRE(f.sequence.readers() == 2);
  CHECK(f.sequence.readers_of_rank() == 2);
  CHECK(f.reader(0) == f.stripes({0, 2, 4}));
  CHECK(f.reader(1) == f.stripes({1, 3}));
  // Of the node together: a stripe of each in turn.
  CHECK(f.node(0) == Numbers{0, 2, 1, 3, 5, 4, 10, 6, 11, 7, 8, 9});
}

TEST_CASE("without workers there is one order, and a batch of shards is one worker's") {
  Fixture one({2, 3, 1}, "shuffle=false");
  CHECK(one.sequence.readers() == 1);
  CHECK(one.reader(0) == one.stripes({0, 1, 2}));
  Fixture batches({1, 2, 1, 2, 1, 2, 1}, "shuffle=false workers=2 batch=2");
  CHECK(batches.reader(0) == batches.stripes({0, 1, 4, 5}));
  CHECK(batches.reader(1) == batches.stripes({2, 3, 6}));
}

TEST_CASE("more workers than shards leave some without a stripe") {
  Fixture f({1, 1}, "shuffle=false workers=4");
  CHECK(f.sequence.readers() == 4);
  CHECK(f.reader(1) == f.stripes({1}));
  CHECK(f.reader(2).empty());
}

TEST_CASE("ranks and workers of WebDataset read what its own splitters give them") {
  // split_by_node, then split_by_worker: urls[rank::world][worker::workers].
  std::vector<uint64_t> sizes(13);
  std::iota(sizes.begin(), sizes.end(), 1);
  Fixture f(sizes, "sampler=webdataset world=4 ranks_per_node=2 workers=2 batch=32", 2);
  REQUIRE(f.sequence.readers() == 4);
  for (uint32_t node = 0; node < 2; ++node) {
    for (uint32_t reader = 0; reader < 4; ++reader) {
      Numbers shards;
      for (uint32_t k = reader % 2; 4 * k + 2 * node + reader / 2 < 13; k += 2)
        shards.push_back(4 * k + 2 * node + reader / 2);
      CHECK(f.reader(reader, 0, node) == f.stripes(shards));
    }
  }
}

TEST_CASE("shuffled shards come once an epoch, over all readers and nodes") {
  const std::string plan =
      GENERATE("seed=3 workers=3 world=2 ranks_per_node=1",
               "sampler=webdataset shardshuffle=100 seed=3 workers=2 world=2 ranks_per_node=1",
               "sampler=tf.list_files seed=3 cycle_length=4 shard=after world=2 ranks_per_node=1");
  CAPTURE(plan);
  Fixture f({3, 1, 4, 1, 5, 9, 2, 6}, plan, 2);
  for (uint32_t epoch = 0; epoch < 2; ++epoch) {
    Numbers by_reader, by_node;
    for (uint32_t node = 0; node < 2; ++node) {
      for (uint32_t reader = 0; reader < f.sequence.readers(); ++reader) {
        const Numbers own = f.reader(reader, epoch, node);
        by_reader.insert(by_reader.end(), own.begin(), own.end());
      }
      const Numbers own = f.node(node, epoch);
      by_node.insert(by_node.end(), own.begin(), own.end());
    }
    std::sort(by_reader.begin(), by_reader.end());
    std::sort(by_node.begin(), by_node.end());
    Numbers all(f.index->size());
    std::iota(all.begin(), all.end(), 0U);
    CHECK(by_reader == all);
    CHECK(by_node == all);
  }
}

TEST_CASE("interleave() opens the next shard where one has ended") {
  Fixture f({1, 4, 2, 1, 1}, "sampler=tf.list_files shuffle=false cycle_length=2");
  REQUIRE(f.sequence.readers() == 1);
  // Slot 0 has shards 0, 2, 3, slot 1 has shard 1 and then shard 4.
  CHECK(f.reader(0) == Numbers{0, 1, 5, 2, 6, 3, 7, 4, 8});
  CHECK(f.sequence.streams_of_reader() == 2);
}

TEST_CASE("interleave() reads any list of files that a script gives it") {
  const std::string plan = GENERATE("sampler=torch.sequential", "list=[0,1,2,3,4]");
  CAPTURE(plan);
  Fixture f({1, 4, 2, 1, 1}, plan + " num_parallel_reads=2");
  CHECK(f.sequence.readers() == 1);
  CHECK(f.reader(0) == Numbers{0, 1, 5, 2, 6, 3, 7, 4, 8});
  CHECK(f.sequence.streams_of_reader() == 2);
  Fixture one({1, 4, 2, 1, 1}, plan + " num_parallel_reads=1");
  CHECK(one.reader(0) == one.stripes({0, 1, 2, 3, 4}));
  CHECK(one.sequence.streams_of_reader() == 1);
}

TEST_CASE("ranks that all read the same are followed as one, stream by stream") {
  Fixture f({2, 1, 3, 1}, "sampler=torch.sequential world=3 ranks_per_node=3 workers=2");
  CHECK(f.sequence.readers() == 2);
  CHECK(f.reader(1) == f.stripes({1, 3}));
  CHECK(f.node(0).size() == 7);
}

TEST_CASE("streams that are too many take turns, those of a rank or all of them") {
  Fixture ranks(std::vector<uint64_t>(64, 1), "shuffle=false workers=16 world=8 ranks_per_node=8");
  CHECK(ranks.sequence.readers() == 8);
  CHECK(ranks.sequence.streams_of_reader() == 16);
  Fixture all(std::vector<uint64_t>(200, 1), "shuffle=false workers=2 world=100 ranks_per_node=100");
  CHECK(all.sequence.readers() == 1);
  CHECK(all.sequence.streams_of_reader() == 200);
}

TEST_CASE("who resumes has the shards that come first in the order of a rank") {
  Fixture f({2, 3, 1, 4, 2}, "shuffle=false workers=2 start_sample=2");
  CHECK(f.reader(0) == f.stripes({2, 4}));
  CHECK(f.reader(1) == f.stripes({3}));
  CHECK(f.reader(0, 1) == f.stripes({0, 2, 4}));
  CHECK(f.sequence.rank_samples(Epoch(0), TrainingRank(0)).value() == Numbers{2, 3, 4});
}

TEST_CASE("a list of paths orders shards, epoch by epoch") {
  Fixture f({2, 3, 1}, "list='[\"f10002\",\"f10000\",\"f10001\"]' workers=1");
  CHECK(f.reader(0) == f.stripes({2, 0, 1}));
  Fixture numbers({2, 3, 1}, "list=[1,1,0]");
  CHECK(numbers.reader(0) == numbers.stripes({1, 1, 0}));
}

TEST_CASE("a reader may leave a shard for the next one, but not most of an epoch") {
  Fixture many(std::vector<uint64_t>(100, 16), "seed=1 workers=2");
  CHECK(many.sequence.reader_leap() == 16);
  Fixture few({16, 16, 16, 16}, "seed=1 workers=2");
  CHECK(few.sequence.reader_leap() == 4);
  CHECK(few.sequence.reader_slack() == 3);
}

TEST_CASE("copies of shards come in the order of their first use, each once on a node") {
  const Numbers sizes{3, 5, 2, 4, 1, 6};  // samples, 21 in all
  const std::string shards =
      " sampler=streaming shard_sizes=[3,5,2,4,1,6] shuffle_algo=naive num_canonical_nodes=1";
  const auto shard_of = [&](uint32_t sample) {
    uint32_t shard = 0;
    for (; sample >= sizes[shard]; ++shard) sample -= sizes[shard];
    return shard;
  };
  const auto samples_of = [&](const std::string& plan, uint32_t nodes, uint32_t rank) {
    const PlanSpec spec = resolve_plan(parse_plan(plan + shards).value(), nodes).value();
    auto sampler = make_plan_sampler(spec, 21, DatasetSource{}, nullptr);
    return (*sampler)->rank_order(Epoch(0), TrainingRank(rank)).value().to_vector();
  };
  Numbers expected;
  const auto use = [&](uint32_t sample) {
    if (std::ranges::count(expected, shard_of(sample)) == 0) expected.push_back(shard_of(sample));
  };
  const std::vector<uint64_t> one(sizes.size(), 1);  // MiB: a stripe each
  SECTION("by one worker") {
    for (const uint32_t sample : samples_of("batch=2 workers=1", 1, 0)) use(sample);
    Fixture f(one, "batch=2 workers=1" + shards);
    CHECK(f.reader(0) == expected);
    CHECK(f.sequence.streams_of_reader() == 1);
  }
  SECTION("by two workers of two ranks, side by side") {
    const std::string plan = "batch=2 workers=2 world=2 ranks_per_node=2";
    const Numbers a = samples_of(plan, 1, 0);
    const Numbers b = samples_of(plan, 1, 1);
    for (size_t turn = 0; turn < a.size(); turn += 4) {
      for (const size_t i : {turn, turn + 1}) {
        for (const Numbers* rank : {&a, &b}) {
          for (const size_t k : {i, i + 2}) {
            if (k < rank->size()) use((*rank)[k]);
          }
        }
      }
    }
    Fixture f(one, plan + shards);
    REQUIRE(f.sequence.readers() == 1);
    CHECK(f.sequence.streams_of_reader() == 4);
    CHECK(f.node(0) == expected);
    CHECK(f.sequence.rank_samples(Epoch(0), TrainingRank(1)).value() == expected);
  }
  SECTION("by each node its own") {
    const std::string plan = "batch=2 world=2 ranks_per_node=1";
    Fixture f(one, plan + shards, 2);
    for (uint32_t node = 0; node < 2; ++node) {
      expected.clear();
      for (const uint32_t sample : samples_of(plan, 2, node)) use(sample);
      CHECK(f.node(node) == expected);
    }
  }
  SECTION("in the first epoch of the job only") {
    Fixture f(one, "epochs=5" + shards);
    CHECK(f.sequence.last_epoch() == Epoch(0));
    Fixture resumed(one, "epochs=5 first_epoch=2 sample_in_epoch=15" + shards);
    CHECK(resumed.sequence.last_epoch() == Epoch(2));
    CHECK(resumed.reader(0, 2).size() < sizes.size());
  }
}

TEST_CASE("copies of shards need the samples of each") {
  const auto refusal = [](const std::string& plan) {
    const PlanSpec spec =
        resolve_plan(parse_plan("format=shards sampler=streaming " + plan).value(), 1).value();
    auto sampler = make_plan_sampler(spec, 3, DatasetSource{}, nullptr);
    REQUIRE(!sampler);
    return sampler.error().message;
  };
  CHECK_THAT(refusal("shuffle=false"), Contains("shard_sizes: missing"));
  CHECK_THAT(refusal("shard_sizes=[1,2]"), Contains("of 2 shards, the dataset has 3"));
  CHECK_THAT(refusal("shard_sizes=[1,2,3] dataset_shuffle=7"), Contains("dataset_shuffle: "));
}
