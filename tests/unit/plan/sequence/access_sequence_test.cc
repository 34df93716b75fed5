#include "plan/sequence/access_sequence.h"

#include <algorithm>
#include <cerrno>
#include <numeric>

#include "plan/sequence/plan_sampler.h"
#include "tests/support/catch.h"
#include "tests/support/dataset_fixture.h"

using namespace clairfs;

namespace {

using Samples = std::vector<uint32_t>;

Result<AccessSequence> try_sequence(const std::string& text, uint32_t n, uint32_t nodes = 1) {
  auto spec = parse_plan(text);
  if (!spec) return spec.error();
  spec = resolve_plan(std::move(*spec), nodes);
  if (!spec) return spec.error();
  auto sampler = make_plan_sampler(*spec, n, DatasetSource(), nullptr);
  if (!sampler) return sampler.error();
  return AccessSequence::make(std::move(*spec), std::move(*sampler));
}

AccessSequence sequence_of(const std::string& text, uint32_t n, uint32_t nodes = 1) {
  INFO(text);
  auto made = try_sequence(text, n, nodes);
  if (!made) FAIL(made.error().message);
  return std::move(*made);
}

Samples samples_of(AccessSequence& sequence, uint32_t epoch, uint32_t node = 0) {
  const auto made = sequence.sequence(Epoch(epoch), NodeId(node));
  if (!made) FAIL(made.error().message);
  return {made->samples().begin(), made->samples().end()};
}

Samples rank_of(AccessSequence& sequence, uint32_t epoch, uint32_t rank) {
  const auto made = sequence.rank_samples(Epoch(epoch), TrainingRank(rank));
  if (!made) FAIL(made.error().message);
  return *made;
}

}  // namespace

TEST_CASE("ranks of a node are interleaved sample by sample") {
  auto sequence = sequence_of("shuffle=false world=4 ranks_per_node=2 batch=3", 20);
  // Rank r of 4 reads r, r + 4, ...
  CHECK(samples_of(sequence, 0, 0) == Samples{0, 1, 4, 5, 8, 9, 12, 13, 16, 17});
  CHECK(samples_of(sequence, 0, 1) == Samples{2, 3, 6, 7, 10, 11, 14, 15, 18, 19});
  CHECK(samples_of(sequence, 0, 2).empty());
  CHECK(sequence.nodes() == 2);
  CHECK(rank_of(sequence, 0, 3) == Samples{3, 7, 11, 15, 19});
  CHECK(!sequence.rank_samples(Epoch(0), TrainingRank(4)));
}

TEST_CASE("all nodes together read what the sampler says") {
  auto sequence = sequence_of("seed=3 world=6 ranks_per_node=2 batch=4", 101);
  for (uint32_t epoch : {0U, 5U}) {
    const auto order = sequence.order(Epoch(epoch));
    REQUIRE(order);
    Samples all;
    for (uint32_t node = 0; node < 3; ++node) {
      const EpochSequence part = sequence.node_sequence(*order, Epoch(epoch), NodeId(node));
      CHECK(part.length() == 34);
      all.insert(all.end(), part.samples().begin(), part.samples().end());
    }
    std::sort(all.begin(), all.end());
    CHECK(all.size() == 102);  // padded by one
    all.erase(std::unique(all.begin(), all.end()), all.end());
    CHECK(all.size() == 101);
  }
  CHECK(samples_of(sequence, 0) != samples_of(sequence, 1));
  CHECK(samples_of(sequence, 1) == samples_of(sequence, 1));
}

TEST_CASE("drop_last belongs to the sampler, to the loader, or to both") {
  const auto length = [](const std::string& drop) {
    auto sequence = sequence_of("shuffle=false world=2 ranks_per_node=1 batch=4 drop_last=" + drop, 19);
    return samples_of(sequence, 0).size();
  };
  CHECK(length("false") == 10);
  CHECK(length("sampler") == 9);
  CHECK(length("loader") == 8);
  CHECK(length("true") == 8);
  auto random = sequence_of("seed=1 sampler=torch.random batch=8 drop_last=true", 20);
  CHECK(samples_of(random, 0).size() == 16);
}

TEST_CASE("ranks with different shares keep in step") {
  // Positions 0..9 in batches of 5 over 3 ranks: 2, 2 and 1 a step.
  auto sequence = sequence_of("sampler=nopfs seed=1 world=3 ranks_per_node=3 batch=5", 10);
  const Samples together = samples_of(sequence, 0);
  REQUIRE(together.size() == 10);
  const Samples a = rank_of(sequence, 0, 0);
  const Samples b = rank_of(sequence, 0, 1);
  const Samples c = rank_of(sequence, 0, 2);
  CHECK(together == Samples{a[0], b[0], c[0], a[1], b[1], a[2], b[2], c[1], a[3], b[3]});
}

TEST_CASE("batches larger than the dataset, and as many ranks as may be, cost no more than the samples") {
  auto sequence = sequence_of("seed=1 world=1048576 ranks_per_node=1048576 batch=16777216", 1000);
  CHECK(samples_of(sequence, 0).size() == 1048576);
  auto ahead = sequence_of(
      "seed=1 world=1048576 ranks_per_node=1048576 batch=16777216 workers=4096 prefetch_factor=4096", 9);
  CHECK(ahead.reorder_window() >= 1048576);
  CHECK(ahead.reorder_window() < uint64_t{1} << 40);
}

TEST_CASE("a resumed job begins inside its first epoch only") {
  auto sequence = sequence_of("shuffle=false world=2 epochs=5 first_epoch=3 start_sample=4", 20);
  CHECK(!sequence.has_epoch(Epoch(2)));
  CHECK(sequence.has_epoch(Epoch(3)));
  CHECK(sequence.has_epoch(Epoch(4)));
  CHECK(!sequence.has_epoch(Epoch(5)));
  const auto early = sequence.order(Epoch(2));
  REQUIRE(!early);
  CHECK(early.error().code == ERANGE);

  const auto third = sequence.sequence(Epoch(3), NodeId(0));
  REQUIRE(third);
  CHECK(third->length() == 20);
  CHECK(third->first_position() == 8);
  CHECK(third->sample_at(8) == 8);
  CHECK(sequence.sequence(Epoch(4), NodeId(0))->first_position() == 0);
  CHECK(rank_of(sequence, 3, 1) == Samples{9, 11, 13, 15, 17, 19});
  CHECK(rank_of(sequence, 4, 1).size() == 10);

  const auto late = try_sequence("seed=1 world=2 start_sample=10", 20);
  REQUIRE(!late);
  CHECK(late.error().message.find("start_sample=10") != std::string::npos);
}

TEST_CASE("reorder_window is what the workers have in flight") {
  CHECK(sequence_of("seed=1 batch=32 workers=4", 1000).reorder_window() == 9 * 32);
  CHECK(sequence_of("seed=1 batch=32", 1000).reorder_window() == 32);
  CHECK(sequence_of("seed=1 batch=8 workers=2 prefetch_factor=3 world=4", 1000).reorder_window() ==
        7 * 8 * 4);
}

TEST_CASE("files that interleave() has open at once add to the reorder_window") {
  CHECK(sequence_of("sampler=tf.list_files seed=1", 1000).reorder_window() == 1);
  CHECK(sequence_of("sampler=tf.list_files seed=1 cycle_length=16", 1000).reorder_window() == 17);
}

TEST_CASE("ranks that share a framework's samples are followed one by one, the others together") {
  CHECK(sequence_of("sampler=streaming shuffle=false world=4 ranks_per_node=4", 100).readers() == 4);
  CHECK(sequence_of("sampler=tf.shuffle seed=1 world=4 ranks_per_node=4 shard=before", 100).readers() == 4);
  CHECK(sequence_of("sampler=tf.shuffle seed=1 world=4 ranks_per_node=4 shard=none", 100).readers() == 1);
  CHECK(sequence_of("sampler=torchdata seed=1 world=4 ranks_per_node=4", 100).readers() == 1);
}

TEST_CASE("accelerate's loader is split among the ranks in steps") {
  auto split =
      sequence_of("sampler=accelerate seed=1 world=2 ranks_per_node=2 batch=4 split_batches=true", 8);
  auto whole = sequence_of("sampler=accelerate seed=1", 8);
  const Samples order = samples_of(whole, 0);
  // Two samples a rank and step, in turns.
  CHECK(samples_of(split, 0) ==
        Samples{order[0], order[2], order[1], order[3], order[4], order[6], order[5], order[7]});
  CHECK(split.reorder_window() == 4);
  // The sampler drops the short batch itself, and no more.
  auto dropping =
      sequence_of("sampler=accelerate seed=1 world=2 batch=4 split_batches=true drop_last=true", 11);
  CHECK(rank_of(dropping, 0, 1).size() == 4);
}

TEST_CASE("Lightning's loader drops a short batch, its sampler pads") {
  auto sequence = sequence_of("sampler=lightning world=2 ranks_per_node=2 batch=4 drop_last=true", 11);
  CHECK(rank_of(sequence, 0, 1).size() == 4);
}

TEST_CASE("more samples than memory is meant for are refused") {
  const auto wide = try_sequence("seed=1 sampler=torch.random world=4000", 4000000);
  REQUIRE(!wide);
  CHECK(wide.error().message.find("ranks_per_node") != std::string::npos);
}

TEST_CASE("orders written down: numbers and paths, one for all epochs or one each") {
  const TempTree tree;
  for (const char* path : {"a", "b", "c", "d"}) tree.write(path, 1);
  const auto write = [&](const std::string& text) { std::ofstream(tree.at("order")) << text; };
  write("3\n1\n1\n");
  const DatasetSource source = scanned(tree);
  const auto sequence = [&](const std::string& text) -> Result<AccessSequence> {
    auto spec = resolve_plan(*parse_plan(text), 1);
    auto index = make_sample_index(*spec, source);
    if (!index) return index.error();
    auto sampler = make_plan_sampler(*spec, (*index)->size(), source, index->get());
    if (!sampler) return sampler.error();
    return AccessSequence::make(*spec, std::move(*sampler));
  };
  const auto epoch = [&](const std::string& text, uint32_t number) {
    auto made = sequence(text);
    if (!made) FAIL(made.error().message);
    return samples_of(*made, number);
  };
  // The folder has five files: the list itself is one of them, "order", after "d".
  CHECK(epoch("list=order", 7) == Samples{3, 1, 1});
  write("# epoch 0\nd\nb\n\n# epoch 1\nc\n");
  CHECK(epoch("list=order", 0) == Samples{3, 1});
  CHECK(epoch("list=order", 1) == Samples{2});
  CHECK(!sequence("list=order")->has_epoch(Epoch(2)));
  CHECK(sequence("list=order")->last_epoch() == Epoch(1));
  CHECK(sequence("list=order epochs=1")->last_epoch() == Epoch(0));
  CHECK(!sequence("list=[2,0]")->last_epoch());
  CHECK(epoch("list=[2,0]", 1) == Samples{2, 0});
  CHECK(epoch(R"(list='["b","a"]')", 1) == Samples{1, 0});
  CHECK(epoch(R"(format=list sampler=list list='["b","a"]')", 1) == Samples{0, 1});
  auto two = sequence(R"(format=list sampler=list world=2 list='["b","a","c"]')");
  REQUIRE(two);
  CHECK(rank_of(*two, 0, 1) == Samples{1});
  CHECK(epoch("sampler=torch.random shuffle=false", 1) == Samples{0, 1, 2, 3, 4});
  Samples subset = epoch("sampler=torch.subset seed=1 indices=[4,2]", 0);
  std::sort(subset.begin(), subset.end());
  CHECK(subset == Samples{2, 4});
  CHECK(epoch("sampler=torch.weighted seed=1 weights=[0,0,1]", 0) == Samples{2, 2, 2});

  const auto wrong = [&](const std::string& text, const char* part) {
    write(text);
    const auto made = sequence("list=order");
    REQUIRE(!made);
    INFO(made.error().message);
    CHECK(made.error().message.find(part) != std::string::npos);
  };
  wrong("1\n9\n", "9");
  wrong("a\nnowhere\n", "line 2");
  wrong("a\n../a\n", "line 2");
}

TEST_CASE("a plan with a key of another sampler has no order") {
  const auto made = try_sequence("sampler=nopfs seed=1 reseed=epoch", 10);
  REQUIRE(!made);
  CHECK(made.error().code == EINVAL);
  CHECK_THAT(made.error().message, StartsWith("plan: reseed=epoch: "));
}
