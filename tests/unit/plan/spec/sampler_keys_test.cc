#include "plan/spec/sampler_keys.h"

#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

// Empty: the plan's sampler takes all its keys.
std::string refused_key(const PlanPairs& keys) {
  const Status checked = check_sampler_keys(make_plan(keys).value());
  return checked ? "" : checked.error().message;
}

}  // namespace

TEST_CASE("a sampler gets what the plan says") {
  const SamplerSpec spec = spec_of({{"sampler", "torch.random"},
                                    {"n", "1281167"},
                                    {"world", "64"},
                                    {"batch", "32"},
                                    {"seed", "-1"},
                                    {"set_epoch", "never"},
                                    {"drop_last", "1"},
                                    {"replacement", "true"},
                                    {"num_samples", "500"},
                                    {"torch", "1.13.1+cpu"},
                                    {"method", "shuffle"},
                                    {"reseed", "epoch"},
                                    {"gcc", "10"},
                                    {"persistent_workers", "yes"},
                                    {"random_shuffle", "true"},
                                    {"shuffle_after_epoch", "true"},
                                    {"stick_to_shard", "true"},
                                    {"checkpointing", "true"},
                                    {"generator", "default"}});
  CHECK(spec.sampler == "torch.random");
  CHECK(spec.n == 1281167);
  CHECK(spec.world == 64);
  CHECK(spec.batch == 32);
  CHECK(spec.seed == "-1");
  CHECK_FALSE(spec.set_epoch);
  CHECK(spec.shuffle);
  CHECK(spec.drop_last);
  CHECK(spec.replacement == true);
  CHECK(spec.num_samples == 500);
  CHECK(spec.torch == TorchVersion{1, 13});
  CHECK(spec.method == ShuffleMethod::shuffle);
  CHECK(spec.reseed == Reseed::epoch);
  CHECK(spec.libstdcxx == LibstdcxxShuffle::before_gcc11);
  CHECK(spec.args.persistent_workers);
  CHECK(spec.args.random_shuffle);
  CHECK(spec.args.shuffle_after_epoch);
  CHECK(spec.args.stick_to_shard);
  CHECK(spec.args.checkpointing);
  CHECK(spec.generator == TorchGeneratorUse::default_generator);
}

TEST_CASE("each word means its own value") {
  const auto with = [](const std::string& key, const std::string& value) {
    return spec_of({{"seed", "1"}, {key, value}});
  };
  CHECK(with("method", "permutation").method == ShuffleMethod::permutation);
  CHECK(with("method", "Sample").method == ShuffleMethod::sample);
  CHECK(with("reseed", "once").reseed == Reseed::once);
  CHECK(with("generator", "loader").generator == TorchGeneratorUse::loader);
  CHECK(with("generator", "sampler").generator == TorchGeneratorUse::sampler);
  CHECK(with("replacement", "no").replacement == false);
  CHECK(with("set_epoch", "always").set_epoch);
  CHECK(with("torch", "1.13.0a0").torch == TorchVersion{1, 13});  // torch.__version__ of Debian 12
  CHECK(with("torch", "2.6").torch == TorchVersion{2, 6});
  CHECK(with("gcc", "11").libstdcxx == LibstdcxxShuffle::since_gcc11);
}

TEST_CASE("keys that a plan leaves out are left to the sampler") {
  const SamplerSpec spec = spec_of({{"seed", "1"}});
  CHECK_FALSE(spec.replacement);
  CHECK_FALSE(spec.num_samples);
  CHECK_FALSE(spec.generator);
  CHECK_FALSE(spec.method);
  CHECK_FALSE(spec.reseed);
  CHECK_FALSE(spec.libstdcxx);
  CHECK(spec.torch == kNewestTorch);
}

TEST_CASE("a process that has read before the plan begins counts from there") {
  CHECK(spec_of({{"sampler", "dali"}, {"first_epoch", "4"}}).first_epoch == 4);
  CHECK(spec_of({{"sampler", "dali"}, {"first_epoch", "4"}, {"epochs_before", "3"}}).first_epoch == 1);
}

TEST_CASE("the keys of frameworks reach their samplers") {
  const SamplerSpec spec = spec_of({{"sampler", "accelerate"},
                                    {"seed", "1"},
                                    {"num_replicas", "6"},
                                    {"ranks_per_node", "2"},
                                    {"num_workers", "3"},
                                    {"first_epoch", "4"},
                                    {"dataset_shuffle", "77"},
                                    {"block", "5"},
                                    {"use_seedable_sampler", "no"},
                                    {"even_batches", "false"},
                                    {"split_batches", "true"},
                                    {"dispatch_batches", "true"},
                                    {"accelerate", "0.27.2"},
                                    {"torchdata", "0.10.1"},
                                    {"repetitions", "1.5"},
                                    {"selected_round", "0"},
                                    {"selected_ratio", "2"},
                                    {"data_sharding", "false"},
                                    {"buffer_size", "1000"},
                                    {"global_seed", "-3"},
                                    {"shard", "After"},
                                    {"reshuffle_each_iteration", "false"},
                                    {"shardshuffle", "True"},
                                    {"initial", "7"},
                                    {"detshuffle", "true"},
                                    {"shuffle_algo", "PY1BR"},
                                    {"shuffle_block_size", "4096"},
                                    {"num_canonical_nodes", "128"},
                                    {"initial_physical_nodes", "2"},
                                    {"sample_in_epoch", "640"}});
  CHECK(spec.world == 6);
  CHECK(spec.ranks_per_node == 2);
  CHECK(spec.workers == 3);
  CHECK(spec.first_epoch == 4);
  CHECK(spec.dataset_shuffle == "77");
  CHECK(spec.args.block == 5);
  CHECK_FALSE(spec.args.use_seedable_sampler);
  CHECK_FALSE(spec.args.even_batches);
  CHECK(spec.args.split_batches);
  CHECK(spec.args.dispatch_batches);
  CHECK(spec.accelerate == LibraryVersion{0, 27});
  CHECK(spec.torchdata == LibraryVersion{0, 10});
  CHECK(spec.num_repeats == 1.5);
  CHECK(spec.args.selected_round == 0);
  CHECK(spec.args.selected_ratio == 2);
  CHECK_FALSE(spec.args.data_sharding);
  CHECK(spec.args.buffer_size == 1000);
  CHECK(spec.args.global_seed == "-3");
  CHECK(spec.shard == ShardPlace::after);
  CHECK_FALSE(spec.args.reshuffle_each_iteration);
  CHECK(spec.shardshuffle == uint64_t{100});
  CHECK(spec.args.initial == 7);
  CHECK(spec.args.detshuffle);
  CHECK(spec.args.shuffle_algo == "py1br");
  CHECK(spec.args.shuffle_block_size == 4096);
  CHECK(spec.args.num_canonical_nodes == 128);
  CHECK(spec.args.initial_physical_nodes == 2);
  CHECK(spec.args.sample_in_epoch == 640);
}

TEST_CASE("words of frameworks that mean nothing are refused") {
  for (const auto& [key, value] : PlanPairs{{"num_repeats", "0.5"},
                                            {"num_repeats", "three"},
                                            {"num_repeats", "1."},
                                            {"shardshuffle", "-1"},
                                            {"shuffle_algo", "py3"},
                                            {"shard", "around"},
                                            {"accelerate", "new"},
                                            {"dataset_shuffle", "x"}}) {
    INFO(key << "=" << value);
    CHECK_FALSE(make_plan({{"seed", "1"}, {key, value}}));
  }
  CHECK_FALSE(make_plan({{"seed", "1"}, {"batch", "2"}, {"batch_size", "2"}}));  // twice
  CHECK_FALSE(make_plan({{"sampler", "webdataset"}, {"shard", "none"}}));
  const auto tf = make_plan({{"sampler", "tf.shuffle"}, {"seed", "1"}, {"world", "2"}});
  REQUIRE(!tf);
  CHECK(tf.error().message.find("shard: missing") != std::string::npos);
}

TEST_CASE("only the sampler that drops samples itself is told of its own drop_last") {
  const auto dropping = [](const std::string& sampler, const std::string& where) {
    return spec_of({{"sampler", sampler}, {"seed", "1"}, {"drop_last", where}}).drop_last;
  };
  for (const char* sampler : {"torch.distributed", "nopfs", "accelerate", "grain"}) {
    INFO(sampler);
    CHECK(dropping(sampler, "sampler"));
    CHECK_FALSE(dropping(sampler, "loader"));
  }
  CHECK_FALSE(dropping("torch.random", "sampler"));
  CHECK(dropping("torch.random", "loader"));
}

TEST_CASE("a loader that does not shuffle reads in sequence") {
  const SamplerSpec spec = spec_of({{"sampler", "torch.random"}, {"shuffle", "false"}});
  CHECK(spec.sampler == "torch.sequential");
  CHECK(spec.shuffle);
  CHECK_FALSE(spec_of({{"sampler", "torch.distributed"}, {"shuffle", "false"}}).shuffle);
}

TEST_CASE("a key that only other samplers take is refused") {
  const auto refusal = [](const std::string& sampler, const std::string& key, const std::string& value) {
    return refused_key({{"sampler", sampler}, {"seed", "1"}, {key, value}});
  };
  CHECK(refusal("torch.distributed", "replacement", "false") ==
        "plan: replacement=false: has no meaning for sampler=torch.distributed");
  CHECK_THAT(refusal("torch.distributed", "draws", "5"), StartsWith("plan: draws=5: "));
  CHECK_THAT(refusal("torch.distributed", "other_draws", "5"), StartsWith("plan: other_draws=5: "));
  CHECK_THAT(refusal("numpy.legacy", "torch", "2.6"), StartsWith("plan: torch=2.6: "));
  CHECK_THAT(refusal("nopfs", "reseed", "epoch"), StartsWith("plan: reseed=epoch: "));
  CHECK_THAT(refusal("dali", "drop_last", "true"), StartsWith("plan: drop_last=true: "));
  CHECK_THAT(refusal("tf.list_files", "buffer_size", "5"), StartsWith("plan: buffer_size=5: "));
  CHECK_THAT(refusal("grain", "shard_sizes", "[1,2]"), StartsWith("plan: shard_sizes=[1,2]: "));
  // Lightning gives its sampler shuffle=True in any case.
  CHECK_THAT(refusal("lightning", "shuffle", "false"), StartsWith("plan: shuffle=false: "));
  CHECK(refusal("python.random", "shuffle", "false").ends_with("sampler=torch.sequential"));
}

TEST_CASE("files that are read at once are refused of samplers that no interleave() reads") {
  for (const char* name : {"cycle_length", "num_parallel_reads", "interleave_cycle_length"}) {
    INFO(name);
    for (const char* sampler :
         {"torch.distributed", "torch.random", "strided", "webdataset", "streaming", "dali"}) {
      const std::string refused =
          refused_key({{"sampler", sampler}, {"format", "tfrecord"}, {"seed", "1"}, {name, "4"}});
      CHECK_THAT(refused, StartsWith("plan: cycle_length=4: has no meaning"));
      CHECK_THAT(refused, Contains("tf.list_files"));
    }
    for (const char* sampler : {"tf.list_files", "tf.shuffle", "torch.sequential", "python.random",
                                "numpy.legacy", "numpy.default_rng"}) {
      CHECK(refused_key({{"sampler", sampler}, {"format", "tfrecord"}, {"seed", "1"}, {name, "4"}}).empty());
    }
    CHECK(refused_key({{"format", "tfrecord"}, {"list", "order.txt"}, {name, "4"}}).empty());
  }
}

TEST_CASE("a key at its default, or one that all samplers take, is not refused") {
  CHECK(refused_key({{"sampler", "nopfs"}, {"seed", "1"}, {"set_epoch", "always"}, {"draws", "0"}}).empty());
  CHECK(refused_key({{"sampler", "nopfs"}, {"seed", "1"}, {"world", "4"}, {"workers", "2"}}).empty());
  CHECK(refused_key({{"sampler", "grain"}, {"seed", "1"}, {"dataset_shuffle", "7"}}).empty());
  CHECK(refused_key({{"sampler", "torch.subset"}, {"seed", "1"}, {"indices", "[3,1]"}}).empty());
  CHECK(refused_key({{"sampler", "torch.random"}, {"seed", "1"}, {"generator", "default"}, {"draws", "5"}})
            .empty());
}

TEST_CASE("a loader that does not shuffle takes what one that reads in sequence takes") {
  const PlanPairs plain = {{"sampler", "torch.random"}, {"shuffle", "false"}};
  CHECK(refused_key(plain).empty());
  PlanPairs drawing = plain;
  drawing.emplace_back("generator", "loader");
  CHECK(refused_key(drawing) == "plan: generator=loader: has no meaning for sampler=torch.sequential");
}
