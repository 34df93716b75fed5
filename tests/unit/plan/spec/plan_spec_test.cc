#include "plan/spec/plan_spec.h"

#include <cerrno>
#include <functional>
#include <random>

#include <nlohmann/json.hpp>
#include <pthread.h>

#include "plan/spec/arguments.h"
#include "plan/spec/keys.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

PlanSpec parsed(std::string_view text) {
  INFO(text);
  const auto spec = parse_plan(text);
  if (!spec) FAIL(spec.error().message);
  return *spec;
}

// The message of a refusal; also checks its errno and that it is one line.
std::string refusal(std::string_view text) {
  const auto spec = parse_plan(text);
  INFO(text);
  REQUIRE(!spec);
  CHECK(spec.error().code == EINVAL);
  CHECK(spec.error().message.find('\n') == std::string::npos);
  CHECK(spec.error().message.size() < 1000);
  return spec.error().message;
}

void check_reads_back(const PlanSpec& spec) {
  INFO(format_plan(spec));
  CHECK(parsed(format_plan(spec)) == spec);
  CHECK(parsed(format_plan_json(spec)) == spec);
}

}  // namespace

TEST_CASE("a seed alone is a plan") {
  const PlanSpec spec = parsed("seed=42");
  PlanSpec expected;
  expected.seed = "42";
  CHECK(spec == expected);
  CHECK(spec.name == "default");
  CHECK(spec.sampler == "torch.distributed");
  CHECK(spec.batch == 1);
  CHECK(spec.epochs == 0);
  CHECK(format_plan(spec) == "name=default sampler=torch.distributed seed=42 epochs=0 batch=1 workers=0");
  check_reads_back(spec);
}

TEST_CASE("the names that PyTorch has are taken") {
  CHECK(parsed("manual_seed=1 batch_size=32 num_workers=4 num_replicas=8 nproc_per_node=4 num_epochs=9 "
               "start_epoch=2 "
               "sampler=DistributedSampler") ==
        parsed("seed=1 batch=32 workers=4 world=8 ranks_per_node=4 epochs=9 first_epoch=2"));
  CHECK(parsed(R"({"seed": 1, "batch_size": 32, "world_size": 2})") == parsed("seed=1 batch=32 world=2"));
  CHECK(parsed("seed=1 sampler=RandomSampler") == parsed("seed=1 sampler=torch.random"));
  CHECK(parsed("seed=1 sampler=shuffle") == parsed("seed=1 sampler=torch.random"));
  CHECK(parsed("sampler=SequentialSampler") == parsed("sampler=torch.sequential"));
  CHECK(parsed("seed=1 sampler=torch.utils.data.distributed.DistributedSampler").sampler ==
        "torch.distributed");
  CHECK(parsed("seed=1 sampler=torch.utils.data.SubsetRandomSampler indices=[1]").sampler == "torch.subset");
  CHECK(parsed("seed=1 sampler=WeightedRandomSampler weights=[1,2]").sampler == "torch.weighted");
  for (const char* package : {"np", "numpy"}) {
    const std::string random = "seed=1 sampler=" + std::string(package) + ".random.";
    CHECK(parsed(random + "default_rng").sampler == "numpy.default_rng");
    CHECK(parsed(random + "RandomState").sampler == "numpy.legacy");
  }
  CHECK_THAT(refusal("seed=1 batch=32 batch_size=32"), Contains("batch=32: given twice"));
  CHECK_THAT(refusal("seed=1 seed=1"), Contains("given twice"));
  CHECK_THAT(refusal("seed=1 rank=3"), Contains("the same for all ranks"));
  CHECK_THAT(refusal("seed=1 batch_sizes=3"), Contains("unknown key"));
}

TEST_CASE("the names that other frameworks have are taken") {
  CHECK(parsed("sampler=Trainer data_seed=1 per_device_train_batch_size=8 dataloader_num_workers=4 "
               "dataloader_prefetch_factor=3 dataloader_drop_last=True num_train_epochs=2") ==
        parsed("sampler=accelerate seed=1 batch=8 workers=4 prefetch_factor=3 drop_last=true epochs=2"));
  CHECK(parsed("sampler=megatron.random micro_batch_size=2 data_parallel_size=8") ==
        parsed("sampler=megatron.random batch=2 world=8"));
  CHECK(parsed("sampler=tf.list_files seed=1 cycle_length=4 block_length=16 num_parallel_calls=AUTOTUNE "
               "deterministic=True") == parsed("sampler=tf.list_files seed=1 cycle_length=4"));
  CHECK(parsed("num_parallel_calls=-1 seed=1 sampler=tf.shuffle") == parsed("sampler=tf.shuffle seed=1"));
  CHECK(parsed("sampler=webdataset resampled=False") == parsed("sampler=webdataset"));
  CHECK(parsed("sampler=streaming batching_method=random predownload=64") == parsed("sampler=streaming"));
  CHECK(parsed("sampler=dali initial_fill=1024 prefetch_queue_depth=2 read_ahead=True dont_use_mmap=true "
               "enable_checkpointing=True") == parsed("sampler=dali checkpointing=true"));
  CHECK(parsed("sampler=webdataset shardshuffle=100 detshuffle=True seed=42 repeat=False empty_check=False "
               "nodesplitter=wds.split_by_node workersplitter=webdataset.shardlists.split_by_worker") ==
        parsed("sampler=webdataset shardshuffle=100 detshuffle=true seed=42"));
  CHECK(parsed("sampler=webdataset nodesplitter=single_node_only") == parsed("sampler=webdataset"));
  CHECK(parsed("sampler=StreamingDataset shuffle_algo=py1e partition_algo=relaxed sampling_method=balanced "
               "sampling_granularity=1 epoch_size=None replication=None repeat=1.0 proportion=None "
               "choose=None remote=None predownload=None download_retry=2 keep_zip=False") ==
        parsed("sampler=streaming shuffle_algo=py1e"));
  CHECK(parsed("sampler=grain.IndexSampler seed=1 num_records=50 shard_count=4 worker_count=2 "
               "worker_buffer_size=1 drop_remainder=True") ==
        parsed("sampler=grain seed=1 n=50 world=4 workers=2 drop_last=true"));
  CHECK(parsed("sampler=tf.list_files seed=1 num_parallel_reads=8 num_parallel_calls=None "
               "deterministic=None") == parsed("sampler=tf.list_files seed=1 cycle_length=8"));
  CHECK(parsed("format=tfrecords sampler=tf.shuffle shuffle_files=True shuffle_seed=1 "
               "interleave_cycle_length=16 interleave_block_length=16 "
               "shuffle_reshuffle_each_iteration=False") ==
        parsed("format=tfrecord sampler=tf.shuffle seed=1 cycle_length=16 reshuffle_each_iteration=false"));
  CHECK(parsed("format=wds sampler=wds.WebDataset") == parsed("format=tar sampler=webdataset"));
  CHECK(parsed("sampler=accelerate seed=1 split_batches=False even_batches=True dispatch_batches=None "
               "group_by_length=False dataloader_persistent_workers=True") ==
        parsed("sampler=accelerate seed=1 persistent_workers=true"));
  CHECK(parsed("sampler=lightning use_distributed_sampler=True overfit_batches=0.0 max_epochs=3") ==
        parsed("sampler=lightning epochs=3"));
  CHECK(parsed("sampler=Trainer seed=1 num_train_epochs=3.0") ==
        parsed("sampler=accelerate seed=1 epochs=3"));
  CHECK(parsed(R"({"sampler": "Trainer", "seed": 1, "num_train_epochs": 3.0})").epochs == 3);
  CHECK(parsed(R"({"sampler": "lightning", "overfit_batches": 0.0})") == parsed("sampler=lightning"));
  CHECK(parsed("sampler=RepeatAugSampler num_aug_repeats=3 selected_round=256 selected_ratio=0") ==
        parsed("sampler=timm.repeataug num_repeats=3"));
  CHECK(parsed("num_shards=4 sampler=dali") == parsed("sampler=dali world=4"));
  CHECK(parsed("sampler=tf.shuffle seed=1 shard=before num_shards=4") ==
        parsed("sampler=tf.shuffle seed=1 shard=before world=4"));
  CHECK(parsed("sampler=megatron.random total_samples=100 consumed_samples=0") ==
        parsed("sampler=megatron.random n=100"));
}

TEST_CASE("arguments that only say how bytes are fetched have no effect") {
  CHECK(parsed("sampler=StreamingDataset cache_limit=100gb download_timeout=60.0 validate_hash=sha1 "
               "allow_unsafe_types=True") == parsed("sampler=streaming"));
  CHECK(parsed("sampler=StreamingDataset cache_limit=None validate_hash=None") ==
        parsed("sampler=streaming"));
  CHECK(parsed("sampler=dali pad_last_batch=True lazy_init=True skip_cached_images=False") ==
        parsed("sampler=dali"));
  CHECK(parsed("sampler=webdataset bufsize=8192 cache_dir=/tmp/x cache_size=-1") ==
        parsed("sampler=webdataset"));
  CHECK(parsed("sampler=pytorch_lightning replace_sampler_ddp=True") == parsed("sampler=lightning"));
  CHECK_THAT(refusal("sampler=dali skip_cached_images=True"), Contains("cannot be predicted"));
  CHECK_THAT(refusal("sampler=streaming cache_limit=little"), Contains("100gb"));
  CHECK_THAT(refusal("sampler=webdataset bufsize=large"), Contains("number of bytes"));
  CHECK_THAT(refusal("seed=1 cache_limit=100gb"), Contains("belongs to sampler=streaming"));
}

TEST_CASE("Trainer's sampler has a seed of its own") {
  const PlanSpec wanted = parsed("sampler=accelerate seed=7");
  for (const char* seeds :
       {"seed=42 data_seed=7", "data_seed=7 seed=42", "data_seed=7", "seed=7 data_seed=None",
        "data_seed=None seed=7", "seed=42 data_seed=7 accelerate=1.1"}) {
    INFO(seeds);
    PlanSpec made = parsed(std::string("sampler=Trainer ") + seeds);
    made.accelerate.clear();
    CHECK(made == wanted);
    CHECK(parsed(std::string(seeds) + " sampler=Trainer").seed == "7");
  }
  // Where it does not reach the loader.
  CHECK(parsed("sampler=Trainer seed=42 data_seed=7 use_seedable_sampler=False").seed == "42");
  CHECK(parsed("sampler=Trainer seed=42 data_seed=7 accelerate=1.0.1").seed == "42");
  CHECK_THAT(refusal("sampler=Trainer seed=42 data_seed=7 data_seed=8"), Contains("given twice"));
  CHECK_THAT(refusal("sampler=Trainer seed=42 data_seed=seven"), Contains("seven"));
  CHECK_THAT(refusal("sampler=RandomSampler seed=42 data_seed=7"), Contains("given twice"));
}

TEST_CASE("samplers have the names of their modules") {
  const auto same = [](const std::string& name, const std::string& canonical) {
    INFO(name);
    CHECK(parsed("seed=5 sampler=" + name) == parsed("seed=5 sampler=" + canonical));
  };
  same("torchdata.stateful_dataloader.sampler.RandomSampler", "torchdata.random");
  for (const std::string module :
       {"megatron.legacy.data.data_samplers.", "megatron.training.datasets.data_samplers."}) {
    same(module + "MegatronPretrainingSampler", "megatron.sequential");
    same(module + "MegatronPretrainingRandomSampler", "megatron.random");
  }
  for (const char* name : {"fn.readers.file", "nvidia.dali.fn.readers.file"}) same(name, "dali");
}

TEST_CASE("a list of WebDataset's is shuffled if it has a seed") {
  for (const std::string name : {"SimpleShardList", "wds.SimpleShardList", "webdataset.SimpleShardList",
                                 "webdataset.shardlists.SimpleShardList"}) {
    INFO(name);
    CHECK(parsed("sampler=" + name) == parsed("sampler=webdataset"));
    const PlanSpec shuffled = parsed("seed=5 sampler=" + name);
    CHECK(shuffled == parsed("sampler=webdataset seed=5 method=shuffle"));
    check_reads_back(shuffled);
  }
  CHECK(parsed("sampler=wds.WebDataset seed=5").method.empty());
}

TEST_CASE("shards are ranks only to the frameworks that call them so") {
  CHECK_THAT(refusal("format=tar sampler=webdataset num_shards=64"), Contains("num_shards: unknown key"));
  CHECK_THAT(refusal("seed=1 num_shards=64"), Contains("num_shards: unknown key"));
  CHECK_THAT(refusal("sampler=streaming shard_count=64"), Contains("shard_count: unknown key"));
  CHECK_THAT(refusal("sampler=dali num_shards=4 world=4"), Contains("given twice"));
}

TEST_CASE("no argument of a framework hides a key of a plan") {
  for (const PlanKey& key : plan_keys()) {
    INFO(key.name);
    CHECK_FALSE(is_argument(key.name));
    CHECK(canonical_plan_key(std::string(key.name)) == key.name);
  }
}

TEST_CASE("Python's None is the framework's own default") {
  CHECK(parsed("seed=1 num_replicas=None rank=None prefetch_factor=None drop_last=False") ==
        parsed("seed=1"));
  CHECK(parsed("sampler=streaming num_canonical_nodes=None shuffle_block_size=None seed=None") ==
        parsed("sampler=streaming"));
  CHECK(parsed("sampler=tf.shuffle seed=1 global_seed=None") == parsed("sampler=tf.shuffle seed=1"));
  CHECK_THAT(refusal("seed=None"), Contains("seed: missing"));
  CHECK(parsed("sampler=Trainer data_seed=None seed=1") == parsed("sampler=accelerate seed=1"));
  CHECK(parsed("sampler=tf.list_files seed=1 cycle_length=4 block_length=None num_parallel_reads=None") ==
        parsed("sampler=tf.list_files seed=1 cycle_length=4"));
  CHECK(parsed("sampler=tf.shuffle seed=1 interleave_block_length=None") ==
        parsed("sampler=tf.shuffle seed=1"));
  for (const char* key : {"cycle_length", "interleave_cycle_length"}) {
    const std::string plan = "{\"sampler\": \"tf.list_files\", \"seed\": 1, \"";
    CHECK_THAT(refusal(plan + key + "\": null}"), Contains("processors"));
    CHECK_THAT(refusal("sampler=tf.list_files seed=1 " + std::string(key) + "=None"), Contains("processors"));
  }
  CHECK_THAT(refusal("sampler=StatefulDataLoader seed=1 shuffle=None"), Contains("want true or false"));
  CHECK_THAT(refusal(R"({"sampler": "RandomSampler", "seed": 1, "shuffle": null})"),
             Contains("want true or false"));
  CHECK_THAT(refusal(R"({"sampler": "webdataset", "nodesplitter": null})"), Contains("split_by_node"));
  CHECK_THAT(refusal(R"({"sampler": "webdataset", "workersplitter": null})"), Contains("split_by_worker"));
  CHECK(parsed("seed=1 root=None").root == "None");
  for (const std::string key : {"local", "remote", "epoch_size", "keep_zip", "batching_method"}) {
    CHECK(parsed("sampler=streaming " + key + "=None") == parsed("sampler=streaming"));
    CHECK(parsed(R"({"sampler": "streaming", ")" + key + "\": null}") == parsed("sampler=streaming"));
  }
  for (const std::string key : {"in_order", "use_distributed_sampler"}) {  // it is False to them
    CHECK_THAT(refusal("sampler=lightning " + key + "=None"), Contains(key + "=None"));
    CHECK_THAT(refusal(R"({"sampler": "lightning", ")" + key + "\": null}"), Contains(key + "=None"));
  }
}

TEST_CASE("a state of StreamingDataset is taken as its state_dict() gives it") {
  const PlanSpec resumed = parsed(
      R"({"sampler": "StreamingDataset", "epoch": 2, "sample_in_epoch": 96, "num_canonical_nodes": 4,
          "shuffle_seed": 7, "initial_physical_nodes": 2})");
  CHECK(resumed == parsed("sampler=streaming first_epoch=2 sample_in_epoch=96 num_canonical_nodes=4 seed=7 "
                          "initial_physical_nodes=2"));
  CHECK(parsed("epoch=2 sampler=streaming") == parsed("sampler=streaming first_epoch=2"));
  CHECK_THAT(refusal("sampler=streaming epoch=2 first_epoch=2"), Contains("given twice"));
  CHECK_THAT(refusal("sampler=streaming epoch=1 epoch=2"), Contains("given twice"));
  CHECK_THAT(refusal("seed=1 epoch=2"), Contains("did you mean epochs"));
}

TEST_CASE("arguments of frameworks with which no order can be known are refused with the reason") {
  const auto refused = [](const std::string& text, const char* key, const char* reason) {
    const std::string message = refusal(text);
    INFO(message);
    CHECK(message.starts_with("plan: " + std::string(key)));
    CHECK(message.find(reason) != std::string::npos);
  };
  refused("sampler=webdataset resampled=True", "resampled=True", "random bytes");
  refused("sampler=tf.shuffle seed=1 deterministic=False", "deterministic=False", "timing");
  refused("sampler=tf.shuffle seed=1 block_length=100000", "block_length=100000", "cycle_length=1");
  refused("sampler=tf.shuffle seed=1 num_parallel_calls=many", "num_parallel_calls=many", "AUTOTUNE");
  refused("sampler=streaming batching_method=stratified", "batching_method=stratified", "random");
  refused("sampler=dali shard_id=1", "shard_id=1", "all ranks");
  refused("seed=1 predownload=8", "predownload=8", "belongs to sampler=streaming, not to torch.distributed");
  refused("seed=1 block_length=8", "block_length=8", "belongs to sampler=tf.*");
  refused("sampler=webdataset initial_fill=8", "initial_fill=8", "belongs to sampler=dali");
  refused("sampler=webdataset nodesplitter=None", "nodesplitter=None", "split_by_node");
  refused("sampler=webdataset workersplitter=my.splitter", "workersplitter=my.splitter", "split_by_worker");
  refused("sampler=webdataset nodesplitter=my.split_by_node", "nodesplitter=my.split_by_node", "otherwise");
  refused("sampler=webdataset repeat=True", "repeat=True", "persistent_workers=true");
  refused("sampler=streaming repeat=2", "repeat=2", "once an epoch");
  refused("sampler=streaming choose=100", "choose=100", "once an epoch");
  refused("sampler=streaming proportion=0.5", "proportion=0.5", "once an epoch");
  refused("sampler=streaming epoch_size=100", "epoch_size=100", "once an epoch");
  refused("sampler=streaming replication=2", "replication=2", "the same samples");
  refused("sampler=streaming local=/mnt/data", "local=/mnt/data", "format=mds");
  refused("sampler=streaming remote=/mnt/data", "remote=/mnt/data", "format=shards");
  refused("sampler=tf.shuffle seed=1 repeat=2", "repeat=2",
          "sampler=webdataset or streaming, not to tf.shuffle");
  refused("sampler=tf.list_files seed=1 cycle_length=AUTOTUNE", "cycle_length=AUTOTUNE", "processors");
  refused("sampler=grain seed=1 shard_index=1", "shard_index=1", "all ranks");
  refused("sampler=accelerate seed=1 group_by_length=True", "group_by_length=True", "register()");
  refused("sampler=lightning use_distributed_sampler=False", "use_distributed_sampler=False", "own");
  refused("sampler=lightning overfit_batches=10", "overfit_batches=10", "sampler=list");
  refused("sampler=megatron.random consumed_samples=64", "consumed_samples=64", "start_sample");
}

TEST_CASE("files are read at once where they are read from front to back, and nobody else deals them") {
  CHECK_THAT(refusal("sampler=torch.sequential format=imagefolder num_parallel_reads=4"),
             Contains("cycle_length=4: files are read at once"));
  CHECK_THAT(refusal("sampler=torch.sequential format=tfrecord random_access=true cycle_length=4"),
             Contains("format=shards"));
  CHECK(parsed("sampler=tf.list_files seed=1 format=files cycle_length=4").cycle_length == 4);
  for (const char* sampler : {"tf.list_files seed=1", "torch.sequential"}) {
    const std::string plan = std::string("format=tfrecord cycle_length=4 sampler=") + sampler;
    CHECK(parsed(plan).cycle_length == 4);
    CHECK_THAT(refusal(plan + " workers=2"), Contains("workers=2: the files are dealt either"));
  }
}

TEST_CASE("DALI shuffles files, and records behind its reads") {
  CHECK(parsed("sampler=dali random_shuffle=true").random_shuffle);
  CHECK(parsed("sampler=dali format=list list=f.txt random_shuffle=true").random_shuffle);
  const std::string records = "sampler=dali random_access=true format=";
  for (const char* format : {"tfrecord", "tar"}) {
    CHECK_THAT(refusal(records + format + " random_shuffle=true"), Contains("dont_use_mmap=true"));
    CHECK_THAT(refusal(records + format + " random_shuffle=true dont_use_mmap=false"),
               Contains("random_shuffle=true: DALI maps"));
    const PlanSpec copied = parsed(records + format + " random_shuffle=true dont_use_mmap=True");
    CHECK(copied == parsed(records + format));
    check_reads_back(copied);
    CHECK_THAT(refusal(records + format + " shuffle_after_epoch=true"), Contains("only DALI's file reader"));
  }
  CHECK(parsed("sampler=dali file=x.lmdb keys=cursor random_shuffle=true") ==
        parsed("sampler=dali file=x.lmdb keys=cursor"));
}

TEST_CASE("DALI's ranks get records and no files") {
  for (const char* format : {"tfrecord", "tar", "shards"}) {
    const std::string plan = std::string("sampler=dali format=") + format;
    CHECK(parsed(plan + " world=1").world == 1);
    CHECK_THAT(refusal(plan + " num_shards=2"), Contains("world=2: DALI deals records"));
    CHECK_THAT(refusal(plan + " workers=2"), Contains("workers=2: DALI's reader"));
    const auto resolved = resolve_plan(parsed(plan), 2);  // a rank on each of the nodes
    REQUIRE(!resolved);
    CHECK_THAT(resolved.error().message, Contains("random_access=true"));
  }
  CHECK(parsed("sampler=dali format=tfrecord random_access=true num_shards=2").world == 2);
  CHECK(parsed("sampler=dali format=imagefolder num_shards=2 workers=2").world == 2);
}

TEST_CASE("builds of torch are known by their release") {
  for (const char* version : {"1.13.0a0", "1.13.1+cpu", "1.13", "1.13.0a0+git49444c3"}) {
    CHECK(parsed(std::string("seed=1 sampler=torch.random torch=") + version).torch == "1.13");
  }
  CHECK(parsed("seed=1 torch=2.6.0+cu124").torch == "2.6");
  refusal("seed=1 torch=two");
}

TEST_CASE("a plan is described without long states and lists") {
  const std::string state(6744, 'A');
  const PlanSpec spec = parsed("sampler=torch.random state=" + state);
  CHECK_THAT(describe_plan(spec), Contains("AAAA...(6744 characters)"));
  CHECK(describe_plan(spec).size() < 250);
  std::string list = "[0";
  for (int i = 1; i < 1000; ++i) list += "," + std::to_string(i);
  CHECK(describe_plan(parsed("list=" + list + "]")).size() < 250);
  const PlanSpec plain =
      parsed("seed=1 list=/a/path/that/is/longer/than/forty/characters/and/is/shown/whole.txt");
  CHECK(describe_plan(plain) == format_plan(plain));
}

TEST_CASE("text and JSON are the same plan") {
  const PlanSpec text = parsed(
      "format=imagefolder sampler=torch.distributed seed=42 epochs=90 world=8 ranks_per_node=8\n"
      "batch=32\tworkers=4 drop_last=True shuffle=1\n");
  const PlanSpec json = parsed(
      R"({"format": "imagefolder", "sampler": "torch.distributed", "seed": 42, "epochs": 90, "world": 8,
          "ranks_per_node": 8, "batch": "32", "workers": 4, "drop_last": true, "shuffle": true, "state": null})");
  CHECK(text == json);
  CHECK(text.ranks_per_node == 8);
  CHECK(text.drops_in_loader());
  CHECK(text.drops_in_sampler());
  check_reads_back(text);
  const auto shown = nlohmann::json::parse(format_plan_json(text));
  CHECK(shown["batch"] == 32);
  CHECK(shown["drop_last"] == "true");
}

TEST_CASE("seeds are numbers in JSON where 64 bits hold them, and text elsewhere") {
  const auto seed_of = [](const std::string& text, const char* key = "seed") {
    const PlanSpec spec = parsed(text);
    check_reads_back(spec);
    return nlohmann::json::parse(format_plan_json(spec)).at(key).dump();
  };
  CHECK(seed_of("seed=42") == "42");
  CHECK(seed_of("sampler=torch.random seed=-7") == "-7");
  CHECK(seed_of("sampler=numpy.default_rng seed=18446744073709551615") == "18446744073709551615");
  CHECK(seed_of("sampler=numpy.default_rng seed=18446744073709551616") == "\"18446744073709551616\"");
  CHECK(seed_of("sampler=numpy.default_rng seed=[1,2]") == "\"[1,2]\"");
  CHECK(seed_of("sampler=python.random seed=str:12") == "\"str:12\"");
  CHECK(seed_of("seed=1 root=123", "root") == "\"123\"");
}

TEST_CASE("every key reads back") {
  check_reads_back(
      parsed("name=val.1 root='my data/train' format=list list=\"a \\\"b\\\" \\\\ c\" seed=-7 n=5 "
             "shuffle=false drop_last=loader set_epoch=never persistent_workers=1 torch=1.13.1+cu117 "
             "epochs=9 first_epoch=3 start_sample=64 world=8 ranks_per_node=4 batch=16 workers=2 "
             "prefetch_factor=4"));
  check_reads_back(parsed("sampler=numpy.default_rng seed=[1,2] reseed=epoch method=shuffle"));
  check_reads_back(parsed("sampler=python.random seed='str:a b' method=sample num_samples=10"));
  check_reads_back(
      parsed("sampler=dali random_shuffle=1 shuffle_after_epoch=1 stick_to_shard=1 checkpointing=1 gcc=9"));
  check_reads_back(parsed("sampler=torch.random state=AAECAw== generator=default replacement=true"));
  check_reads_back(parsed("sampler=torch.weighted seed=1 weights=[0.1,2,1e-300] num_samples=7"));
  check_reads_back(parsed("sampler=torch.subset seed=1 indices='[3, 1, 2]'"));
  check_reads_back(
      parsed("format=npy file=x.npy allow_empty=true seed=340282366920938463463374607431768211456"));
  check_reads_back(parsed("file=x.bin record=110000 header=128 stride=110592 seed=1"));
  check_reads_back(parsed("file=*.lmdb keys=image-%09d,label-%09d skip='a b*' db=x seed=1"));
  check_reads_back(parsed("format=ranges list=r.txt seed=1"));
  check_reads_back(parsed("list='[\"a b.jpg\", \"c\\\\n\", 3]'"));
  CHECK(parsed("root=\xff\xfe seed=1").root == "\xff\xfe");
  CHECK(parsed(format_plan(parsed("root=\xff\xfe seed=1"))).root == "\xff\xfe");
}

TEST_CASE("spellings of one value are one plan") {
  CHECK(parsed("seed=0042") == parsed("seed=42"));
  CHECK(parsed("seed=-0").seed == "0");
  CHECK(parsed("seed=1 set_epoch=False") == parsed("seed=1 set_epoch=never"));
  CHECK(parsed("seed=1 drop_last=0") == parsed("seed=1 drop_last=no"));
  CHECK(parsed("seed=1 replacement=false").replacement == "false");
  CHECK(parsed(std::string("seed=1\n\0", 8)) == parsed("  seed=1"));
}

TEST_CASE("a list gives the order unless it numbers the samples") {
  CHECK(parsed("list=order.txt").sampler == "list");
  CHECK(parsed("sampler=list=order.txt") == parsed("list=order.txt"));
  CHECK(parsed("format=list list=names.txt seed=1").sampler == "torch.distributed");
  CHECK(parsed("format=list=names.txt seed=1") == parsed("format=list list=names.txt seed=1"));
  CHECK(parsed("format=ranges list=ranges.txt seed=1").sampler == "torch.distributed");
  CHECK(parsed("file=x record=8 seed=1").format == "raw");
  CHECK(parsed("sampler=torch.subset seed=1 list=some.txt").indices == "some.txt");
  CHECK(parsed(R"({"list": [3, 1, 2]})").list == "[3,1,2]");
}

TEST_CASE("a file tells its format unless the plan does") {
  const auto format_with = [](const std::string& keys) { return parsed("seed=1 " + keys).format; };
  for (const char* file : {"a/x.npy", "x", "x.tfrecord.npy"})
    CHECK(format_with(std::string("file=") + file) == "npy");
  for (const char* file : {"x.tar", "a/*.tar.gz", "x.tgz", "x.tar.zst"})
    CHECK(format_with(std::string("file=") + file) == "tar");
  for (const char* file :
       {"x.tfrecord", "a.b/*.tfrecords", "x.tfrecord-00000-of-00010", "x.tfrecord.gz", "x.tfrec"})
    CHECK(format_with(std::string("file=") + file) == "tfrecord");
  CHECK(format_with("file=x.h5 dataset=/images") == "hdf5");
  CHECK(format_with("file=part0 dataset=/images") == "hdf5");
  CHECK(format_with("file=x.bin") == "megatron");
  CHECK(format_with("file=x.bin record=8") == "raw");
  CHECK(format_with("file=x.tar format=shards") == "shards");
  CHECK(format_with("file=a.tar/x") == "npy");
  CHECK_THAT(refusal("seed=1 file=x.lmdb"), Contains("keys: missing"));
  CHECK_THAT(refusal("seed=1 file=x.h5"), Contains("dataset: missing"));
}

TEST_CASE("a refusal names the key, the value and what would be right") {
  const auto names = [](const std::string& message, std::initializer_list<const char*> parts) {
    INFO(message);
    for (const char* part : parts) CHECK(message.find(part) != std::string::npos);
  };
  names(refusal("seed=42 wrokers=4"), {"wrokers", "did you mean workers"});
  names(refusal("seed=42 banana=4"), {"banana", "the keys are", "ranks_per_node"});
  names(refusal("seed=42 batch=0"), {"batch=0", "from 1 to"});
  names(refusal("seed=42 batch=32,"), {"batch=32,", "whole number"});
  names(refusal("seed=42 world=-1"), {"world=-1", "training ranks"});
  names(refusal("seed=42 epochs=1e3"), {"epochs=1e3"});
  names(refusal("seed=42 epochs=3.5"), {"epochs=3.5", "whole number"});
  names(refusal("seed=42 epochs=.0"), {"epochs=.0", "whole number"});
  names(refusal("seed=abc"), {"seed=abc", "whole number"});
  names(refusal("batch=4"), {"seed", "missing", "unseeded"});
  names(refusal("seed=42 seed=43"), {"seed=43", "given twice"});
  names(refusal(R"({"seed": 42, "seed": 43})"), {"seed", "given twice"});
  names(refusal(R"({"seed": 42.5})"), {"seed", "quotes"});
  names(refusal(R"({"seed": {"a": 1}})"), {"seed", "want a number"});
  names(refusal(R"({"seed": 42)"), {"JSON", "line 1"});
  CHECK(refusal(R"({"seed": 42)").find("json.exception") == std::string::npos);  // the library's word
  names(refusal("{}"), {"seed", "missing"});
  names(refusal("seed=42 sampler=torch.distrbuted"), {"torch.distrbuted", "torch.distributed"});
  names(refusal("seed=42 sampler=keras"), {"keras", "list=FILE"});
  names(refusal("seed=42 format=parquet"), {"parquet", "no bytes of their own", "format=shards"});
  names(refusal("seed=42 format=Arrow"), {"arrow", "format=ranges list=FILE"});
  names(refusal("seed=42 format=zarr"), {"zarr", "format=list list=FILE"});
  names(refusal("seed=42 format=hdf5 file=a.h5"), {"dataset", "missing", "NAME"});
  names(refusal("seed=42 format=lmdb file=a keys=cursor dataset=x"), {"dataset", "format=hdf5"});
  names(refusal("seed=42 format=jpeg"), {"jpeg", "imagefolder"});
  names(refusal("seed=42 in_order=False"), {"in_order", "cannot be predicted"});
  names(refusal("seed=42 sampler=torch.weighted weights=w replacement=false"),
        {"replacement", "cannot be predicted"});
  names(refusal("seed=42 sampler=torch.weighted weights=w num_samples=1"),
        {"num_samples", "cannot be predicted"});
  names(refusal("seed=42 sampler=torch.weighted"), {"weights", "missing"});
  names(refusal("seed=42 sampler=torch.subset"), {"indices", "missing"});
  names(refusal("seed=42 weights=[1]"), {"weights", "torch.weighted"});
  names(refusal("seed=42 state=AAAA sampler=torch.random"), {"seed", "not both"});
  names(refusal("state=AAAA"), {"state", "torch.random"});
  names(refusal("state=A!AA sampler=torch.random"), {"state=A!AA", "base64"});
  names(refusal("sampler=list"), {"list", "missing"});
  names(refusal("format=list seed=1"), {"list", "missing"});
  names(refusal("format=npy seed=1"), {"file", "missing"});
  names(refusal("format=files file=x seed=1"), {"file", "npy", "hdf5", "shards or tar or tfrecord"});
  names(refusal("seed=1 replacement=true"), {"replacement=true", "torch.random", "torchdata.random"});
  names(refusal("format=ranges seed=1"), {"list", "missing", "range"});
  names(refusal("format=raw file=x seed=1"), {"record", "missing", "BYTES"});
  names(refusal("file=x.npy format=npy header=5 seed=1"), {"header=5", "format=raw"});
  names(refusal("format=lmdb file=x seed=1"), {"keys", "missing", "cursor", "image-%09d"});
  names(refusal("format=raw record=1 file=x keys=cursor seed=1"), {"keys=cursor", "format=lmdb"});
  names(refusal("file=x record=8 stride=7 seed=1"), {"stride=7", "record=8", "format=ranges"});
  names(refusal("seed=1 list=[1,-2]"), {"list", "array"});
  names(refusal("seed=1 first_epoch=5 epochs=5"), {"first_epoch=5", "epochs=5"});
  names(refusal("sampler=dali first_epoch=2 epochs_before=3"), {"epochs_before=3", "first_epoch=2"});
  names(refusal("seed=1 world=8 ranks_per_node=3"), {"ranks_per_node=3", "world=8"});
  names(refusal("seed=1 drop_last=maybe"), {"drop_last=maybe", "sampler or loader"});
  names(refusal("seed=1 torch=new"), {"torch=new", "2.6"});
  names(refusal("seed=1 name=a/b"), {"name=a/b", "letters"});
  names(refusal("sampler=StreamingDataset split=train"), {"split=train", "969,30,1", "root="});
  names(refusal("seed=1 root='x"), {"root", "closing '"});
  names(refusal("seed"), {"seed", "KEY=VALUE"});
  names(refusal("seed=1 \x1b[31m=2"), {"\\x1b"});
  names(refusal(" \n"), {"empty"});
  names(refusal(std::string_view("seed=1\0x=2", 10)), {"NUL"});
  names(refusal("seed=1 root=" + std::string(70000, 'x')), {"70012 bytes", "57344"});
}

/// Runs on a thread whose stack is smaller than any that a program gets unasked.
void with_small_stack(std::function<void()> body) {
  constexpr size_t kStack = 512 << 10;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, kStack);
  pthread_t thread = 0;
  const auto run = [](void* what) -> void* {
    (*static_cast<std::function<void()>*>(what))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, &body) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST_CASE("nesting takes no stack") {
  const auto nested = [](const char* open, const char* close, size_t levels) {
    std::string text;
    for (size_t i = 0; i < levels; ++i) text += open;
    for (size_t i = 0; i < levels; ++i) text += close;
    return text;
  };
  const std::string arrays = nested("[", "]", 30000);
  const std::string objects = nested("{\"a\":", "}", 9000).insert(5 * 9000, "1");
  for (const std::string& text : std::initializer_list<std::string>{
           "{\"list\":" + arrays + "}", "{\"list\":" + objects + "}", "seed=1 list=" + arrays,
           "seed=1 weights=[" + objects + "]", "{\"seed\":[[[[[[[[[[1]]]]]]]]]]}"}) {
    bool refused = false;
    with_small_stack([&] { refused = !parse_plan(text); });
    INFO(text.substr(0, 40));
    CHECK(refused);
  }
}

TEST_CASE("ranks are spread over the nodes") {
  const auto resolved = [](const char* text, uint32_t nodes) { return resolve_plan(parsed(text), nodes); };
  CHECK(resolved("seed=1", 4)->world == 4);
  CHECK(resolved("seed=1", 4)->ranks_per_node == 1);
  CHECK(resolved("seed=1 ranks_per_node=8", 4)->world == 32);
  CHECK(resolved("seed=1 world=8", 4)->ranks_per_node == 2);
  CHECK(plan_nodes(*resolved("seed=1 world=8 ranks_per_node=2", 1)) == 4);
  const auto uneven = resolved("seed=1 world=6", 4);
  REQUIRE(!uneven);
  CHECK(uneven.error().message.find("world=6") != std::string::npos);
  CHECK(resolved("seed=1 world=8 ranks_per_node=2", 4).ok());
  for (const char* contradiction : {"seed=1 world=8 ranks_per_node=8", "seed=1 world=8 ranks_per_node=1"}) {
    const auto wrong = resolved(contradiction, 4);
    REQUIRE(!wrong);
    CHECK(wrong.error().message.find("this job has 4 nodes") != std::string::npos);
  }
}

TEST_CASE("random text never crashes the parser and what it accepts reads back") {
  std::mt19937 random(7);
  const auto pick = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const std::vector<std::string> pieces = {
      "=",        " ",     "\n",   "\"",    "'",   "\\",           "{",    "}",      "[",    "]",
      ",",        ":",     "1",    "-",     "4",   "null",         "true", "é",      "\xff", "\x01",
      "\"seed\"", "seed=", "list", "false", "1e9", "torch.random", "[[[[", "format="};
  size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = pick(4) == 0 ? "{" : "seed=1 ";
    for (size_t i = pick(12); i > 0; --i) {
      const size_t kind = pick(3);
      if (kind == 0) text += plan_keys()[pick(plan_keys().size())].name;
      if (kind == 1) text += "=" + std::to_string(pick(100)) + " ";
      if (kind == 2) text += pieces[pick(pieces.size())];
    }
    const auto spec = parse_plan(text);
    if (!spec) {
      CHECK(spec.error().code == EINVAL);
      CHECK(!spec.error().message.empty());
      continue;
    }
    ++accepted;
    INFO(text);
    CHECK(parsed(format_plan(*spec)) == *spec);
  }
  CHECK(accepted > 100);
}
