#include "plan/spec/sampler_keys.h"

#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

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
  CHECK(spec.method == ShuffleMethod::kShuffle);
  CHECK(spec.reseed == Reseed::kEpoch);
  CHECK(spec.libstdcxx == LibstdcxxShuffle::kBeforeGcc11);
  CHECK(spec.persistent_workers);
  CHECK(spec.random_shuffle);
  CHECK(spec.shuffle_after_epoch);
  CHECK(spec.stick_to_shard);
  CHECK(spec.checkpointing);
  CHECK(spec.generator == TorchGeneratorUse::kDefault);
}

TEST_CASE("each word means its own value") {
  const auto with = [](const std::string& key, const std::string& value) {
    return spec_of({{"seed", "1"}, {key, value}});
  };
  CHECK(with("method", "permutation").method == ShuffleMethod::kPermutation);
  CHECK(with("method", "Sample").method == ShuffleMethod::kSample);
  CHECK(with("reseed", "once").reseed == Reseed::kOnce);
  CHECK(with("generator", "loader").generator == TorchGeneratorUse::kLoader);
  CHECK(with("generator", "sampler").generator == TorchGeneratorUse::kSampler);
  CHECK(with("replacement", "no").replacement == false);
  CHECK(with("set_epoch", "always").set_epoch);
  CHECK(with("torch", "1.13.0a0").torch == TorchVersion{1, 13});  // torch.__version__ of Debian 12
  CHECK(with("torch", "2.6").torch == TorchVersion{2, 6});
  CHECK(with("gcc", "11").libstdcxx == LibstdcxxShuffle::kSinceGcc11);
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

TEST_CASE("only the sampler that drops samples itself is told of its own drop_last") {
  const auto dropping = [](const std::string& sampler, const std::string& where) {
    return spec_of({{"sampler", sampler}, {"seed", "1"}, {"drop_last", where}}).drop_last;
  };
  CHECK(dropping("torch.distributed", "sampler"));
  CHECK_FALSE(dropping("torch.distributed", "loader"));
  CHECK_FALSE(dropping("torch.random", "sampler"));
  CHECK(dropping("torch.random", "loader"));
}

TEST_CASE("a loader that does not shuffle reads in sequence") {
  const SamplerSpec spec = spec_of({{"sampler", "torch.random"}, {"shuffle", "false"}});
  CHECK(spec.sampler == "torch.sequential");
  CHECK(spec.shuffle);
  CHECK_FALSE(spec_of({{"sampler", "torch.distributed"}, {"shuffle", "false"}}).shuffle);
}
