
#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("keys are read from text") {
  const SamplerSpec spec = spec_of({{"sampler", "torch.random"},
                                    {"n", "1281167"},
                                    {"world", "64"},
                                    {"batch", "32"},
                                    {"seed", "-1"},
                                    {"set_epoch", "never"},
                                    {"shuffle", "False"},
                                    {"drop_last", "1"},
                                    {"replacement", "true"},
                                    {"num_samples", "500"},
                                    {"torch", "1.13.1+cpu"},
                                    {"method", "shuffle"},
                                    {"reseed", "epoch"},
                                    {"gcc", "10.2"},
                                    {"generator", "default"}});
  CHECK(spec.sampler == "torch.random");
  CHECK(spec.n == 1281167);
  CHECK(spec.world == 64);
  CHECK(spec.batch == 32);
  CHECK(spec.seed == "-1");
  CHECK_FALSE(spec.set_epoch);
  CHECK_FALSE(spec.shuffle);
  CHECK(spec.drop_last);
  CHECK(spec.replacement == true);
  CHECK(spec.num_samples == 500);
  CHECK(spec.torch == TorchVersion{1, 13});
  CHECK(spec.method == ShuffleMethod::kShuffle);
  CHECK(spec.reseed == Reseed::kEpoch);
  CHECK(spec.libstdcxx == LibstdcxxShuffle::kBeforeGcc11);
  CHECK(spec.generator == TorchGeneratorUse::kDefault);
}

TEST_CASE("other keys are left to others") {
  SamplerSpec spec;
  for (const char* key : {"format", "workers", "list", "Seed", ""})
    CHECK_FALSE(*set_sampler_key(spec, key, "1"));
}

TEST_CASE("values that make no sense are refused by key") {
  for (const auto& [key, value] : SamplerKeys{{"n", "many"},
                                              {"n", "-1"},
                                              {"n", "99999999999999999999"},
                                              {"world", "4294967296"},
                                              {"batch", "1.5"},
                                              {"shuffle", "maybe"},
                                              {"set_epoch", "true"},
                                              {"num_samples", ""},
                                              {"torch", "2"},
                                              {"torch", "2.x"},
                                              {"torch", "newest"},
                                              {"method", "choice"},
                                              {"reseed", "daily"},
                                              {"gcc", "clang"},
                                              {"generator", "G"}}) {
    SamplerSpec spec;
    const auto set = set_sampler_key(spec, key, value);
    INFO(key << "=" << value);
    REQUIRE(!set);
    CHECK(set.error().code == EINVAL);
    CHECK(set.error().message.starts_with(key + ":"));
  }
}
