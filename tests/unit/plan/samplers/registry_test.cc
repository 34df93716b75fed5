#include <set>

#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

TEST_CASE("samplers of other frameworks are refused with the way round it") {
  for (const char* name :
       {"keras", "keras.image_dataset_from_directory", "fairseq", "ffcv", "huggingface", "tensorflow"}) {
    const std::string message = refusal_of({.sampler = name, .n = 10, .seed = "1"}, ENOTSUP);
    INFO(message);
    CHECK(message.starts_with("sampler:"));
    CHECK(message.find("sampler=list list=FILE") != std::string::npos);
  }
}

TEST_CASE("an unknown sampler is answered with the known ones") {
  const std::string message = refusal_of({.sampler = "torch.randon", .n = 10, .seed = "1"});
  for (const std::string& name : sampler_names()) CHECK(message.find(name) != std::string::npos);
}

TEST_CASE("samplers are known by the names of their classes") {
  std::set<std::string> known;
  for (const std::string& name : sampler_names()) {
    CHECK(canonical_sampler(name) == name);
    CHECK(known.insert(name).second);  // no two have one name
  }
  for (const char* name : {"distributedsampler",
                           "torch.utils.data.distributed.distributedsampler",
                           "statefuldistributedsampler",
                           "randomsampler",
                           "seedablerandomsampler",
                           "transformers.trainer",
                           "pytorch_lightning",
                           "unrepeateddistributedsampler",
                           "ordereddistributedsampler",
                           "repeataugsampler",
                           "torchvision.rasampler",
                           "megatronpretrainingrandomsampler",
                           "statefuldataloader",
                           "grain.python.indexsampler",
                           "tf.data.dataset.shuffle",
                           "wds.webdataset",
                           "streamingdataset",
                           "caffe",
                           "lmdbio",
                           "torch.utils.data.sampler.randomsampler",
                           "accelerate.data_loader.batchsamplershard",
                           "timm.data.distributed_sampler.repeataugsampler",
                           "torchdata.stateful_dataloader.sampler.statefuldistributedsampler",
                           "grain.samplers.indexsampler",
                           "webdataset.webdataset",
                           "streaming.streamingdataset"}) {
    INFO(name);
    CHECK(known.contains(canonical_sampler(name)));
  }
  CHECK(canonical_sampler("torchdata.stateful_dataloader.statefuldataloader") == "torchdata.random");
  CHECK(canonical_sampler("nothing") == "nothing");
  CHECK(spec_of({{"sampler", "SeedableRandomSampler"}, {"data_seed", "3"}, {"batch_size", "8"}}).batch == 8);
}

TEST_CASE("what is known of a sampler before it is made") {
  CHECK(sampler_traits("torch.distributed").divides);
  CHECK_FALSE(sampler_traits("torch.random").divides);
  CHECK_FALSE(sampler_traits("dali").seeded);
  CHECK_FALSE(sampler_traits("accelerate").in_loader);
  CHECK(sampler_traits("torch.random").in_loader);
  CHECK(sampler_traits("grain").drops);
  CHECK_FALSE(sampler_traits("torch.random").drops);
}

TEST_CASE("what cannot be predicted is refused with the reason") {
  CHECK(refusal_of({.n = 10, .seed = "1", .in_order = false}, ENOTSUP).starts_with("in_order:"));
  for (const char* name : {"torch.random", "numpy.default_rng", "numpy.legacy", "python.random", "nopfs"}) {
    for (const char* seed : {"", "none", "None"}) {
      const std::string message = refusal_of({.sampler = name, .n = 10, .seed = seed});
      CHECK(message.starts_with("seed: missing"));
    }
  }
}

TEST_CASE("the keys that samplers take are keys of a plan") {
  for (const std::string& name : sampler_names()) {
    INFO(name);
    CHECK_FALSE(sampler_keys(name).empty());
    for (const std::string_view key : sampler_keys(name)) {
      INFO(key);
      CHECK(find_plan_key(key));
    }
  }
  CHECK(sampler_keys("accelerate").size() == 10);  // fills its row, which no empty name ends
  CHECK(sampler_keys("nothing").empty());
}

TEST_CASE("sizes out of range are refused") {
  CHECK(refusal_of({.n = 4294967296, .seed = "1"}).starts_with("n:"));
  CHECK(refusal_of({.n = 10, .world = 0, .seed = "1"}).starts_with("world:"));
  CHECK(refusal_of({.n = 10, .batch = 0, .seed = "1"}).starts_with("batch:"));
  CHECK(refusal_of({.sampler = "torch.random", .n = 0, .seed = "1"}).starts_with("n:"));
  const auto sampler = sampler_of({.n = 10, .world = 4, .seed = "1"});
  const auto beyond = sampler->rank_order(Epoch(0), TrainingRank(4));
  REQUIRE(!beyond);
  CHECK(beyond.error().message.starts_with("rank:"));
}

TEST_CASE("the largest dataset and world are plain arithmetic without shuffling") {
  const auto sampler = sampler_of({.n = 4294967295, .world = 4294967295, .seed = "1", .shuffle = false});
  CHECK(indices_of(*sampler, 0, 4294967294) == std::vector<uint32_t>{4294967294});
}
