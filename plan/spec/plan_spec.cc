#include "plan/spec/plan_spec.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <functional>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/samplers/sampler.h"
#include "plan/spec/arguments.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

constexpr std::string_view kFormats[] = {"imagefolder", "timm",   "files", "list",     "ranges",
                                         "npy",         "raw",    "lmdb",  "megatron", "mds",
                                         "hdf5",        "shards", "tar",   "tfrecord"};

// Known by name, and not numbered. One that gets a format of its own is taken out of here.
struct OtherFormat {
  std::string_view name;
  std::string_view want;
};
constexpr std::string_view kRangesOnly =
    "want format=ranges list=FILE with the place of each sample, or format=shards where files are read from "
    "front to back";
constexpr OtherFormat kOtherFormats[] = {
    {"parquet",
     "its rows have no bytes of their own; want format=shards where files are read from front to back"},
    {"json", kRangesOnly},
    {"jsonl", kRangesOnly},
    {"csv", kRangesOnly},
    {"arrow", kRangesOnly},
    {"arrayrecord", kRangesOnly},
    {"array_record", kRangesOnly},
    {"beton", kRangesOnly},
    {"ffcv", kRangesOnly},
    {"recordio", kRangesOnly},
    {"zip", kRangesOnly},
    {"zarr",
     "a chunk of it is a file; want format=list list=FILE with the chunks in the order of the samples"},
};

// A key that says more about some formats and has no meaning with others.
struct FormatKey {
  std::string_view key;
  std::vector<std::string_view> formats;
  std::string_view needed;                      // what one of them cannot do without; empty: it can
  std::vector<std::string_view> optional = {};  // more formats, which can
};
const FormatKey kFormatKeys[] = {
    {"file",
     {"npy", "raw", "lmdb", "megatron", "mds", "hdf5"},
     "PATH of the data below root",
     {"shards", "tar", "tfrecord"}},
    {"record", {"raw"}, "BYTES of a sample"},
    {"header", {"raw"}, ""},
    {"stride", {"raw"}, ""},
    {"dataset", {"hdf5"}, "NAME[,NAME]... of datasets in the file"},
    {"keys", {"lmdb"}, "cursor, decimal, a pattern such as image-%09d, or a file that lists the keys"},
    {"skip", {"lmdb"}, ""},
    {"db", {"lmdb"}, ""},
    {"sequence_length", {"megatron"}, ""},
    {"train_samples", {"megatron"}, ""},
    {"split", {"megatron"}, ""},
    {"cache", {"megatron"}, ""},
    {"random_access", {"tar", "tfrecord"}, ""},
};

template <class Container>
bool contains(const Container& container, std::string_view value) {
  return std::find(std::begin(container), std::end(container), value) != std::end(container);
}

template <class Container>
std::string joined(const Container& container, const char* between) {
  std::string all;
  for (std::string_view item : container) all += (all.empty() ? "" : between) + std::string(item);
  return all;
}

Status check_format_key(const FormatKey& known, const PlanSpec& spec) {
  const PlanKey& key = *find_plan_key(known.key).value();
  const bool given = plan_value_shown(key, spec);
  const bool takes_it = contains(known.formats, spec.format);
  if (given && !takes_it && !contains(known.optional, spec.format)) {
    std::vector<std::string_view> all = known.formats;
    all.insert(all.end(), known.optional.begin(), known.optional.end());
    return plan_error(
        known.key, plan_value(key, spec),
        fmt::format("belongs to format={}; want that or no {}", joined(all, " or "), known.key));
  }
  if (!given && takes_it && !known.needed.empty()) {
    return plan_error(known.key, "",
                      fmt::format("missing: format={} needs {}={}", spec.format, known.key, known.needed));
  }
  return {};
}

Status check_format(const PlanSpec& spec) {
  const auto* const other = std::ranges::find(kOtherFormats, spec.format, &OtherFormat::name);
  if (other != std::end(kOtherFormats)) return plan_error("format", spec.format, other->want);
  if (!spec.format.empty() && !contains(kFormats, spec.format)) {
    return plan_error("format", spec.format, "unknown format; want one of " + joined(kFormats, ", "));
  }
  for (const FormatKey& known : kFormatKeys) {
    if (Status status = check_format_key(known, spec); !status) return status;
  }
  const bool computed = spec.train_samples != 0 || !spec.split.empty();
  if (spec.sequence_length == 0 && (computed || !spec.cache.empty())) {
    return plan_error("sequence_length", "",
                      "missing: train_samples, split and cache are those of GPT samples");
  }
  if (computed && !spec.cache.empty()) {
    return plan_error("cache", spec.cache,
                      "has been made of train_samples and split; want either these or cache");
  }
  if (spec.sequence_length != 0 && spec.seed.empty() && spec.cache.empty()) {
    return plan_error("seed", "", "missing: GPT samples are shuffled with Megatron's --seed");
  }
  if (spec.random_access && spec.sampler == "webdataset") {
    return plan_error("random_access", "true", "WebDataset reads shards from front to back");
  }
  if (spec.stride != 0 && spec.stride < spec.record) {
    return plan_error("stride", std::to_string(spec.stride),
                      fmt::format("want at least record={}; windows that overlap are samples of "
                                  "format=ranges list=FILE",
                                  spec.record));
  }
  return {};
}

Status check_sampler(const PlanSpec& spec) {
  if (!contains(sampler_names(), spec.sampler)) {
    // It knows the reason and the advice for each name.
    SamplerSpec named;
    named.sampler = spec.sampler;
    const auto refused = make_sampler(named);
    return Error{EINVAL, "plan: " + (refused ? spec.sampler : refused.error().message)};
  }
  const bool draws_from_generator = contains(sampler_keys(spec.sampler), "state");
  if (!spec.state.empty() && !draws_from_generator) {
    return plan_error("state", "",
                      "only torch.random, torch.subset, torch.weighted, torchdata.random and accelerate "
                      "start from a generator's state; want seed=NUMBER");
  }
  if (!spec.state.empty() && !spec.seed.empty()) {
    return plan_error("seed", spec.seed, "want either seed or state, not both");
  }
  const bool fixed_order = !spec.shuffle || !sampler_traits(spec.sampler).seeded;
  if (spec.seed.empty() && spec.state.empty() && !fixed_order) {
    return plan_error("seed", "",
                      "missing: an unseeded sampler cannot be predicted; want the seed that the script "
                      "gives its sampler (DistributedSampler's own default is seed=0)");
  }
  if (spec.sampler.starts_with("tf.") && spec.world > 1 && spec.shard.empty()) {
    return plan_error(
        "shard", "",
        "missing: with several ranks want before, after or none, as .shard() stands to .shuffle()");
  }
  if (spec.sampler == "webdataset" && spec.shard == "none") {
    return plan_error("shard", "none",
                      "WebDataset deals its shards; want before (WebDataset()) or after the shuffle");
  }
  if (spec.replacement == "true" && !draws_from_generator) {
    return plan_error("replacement", "true",
                      "only torch.random, torch.weighted and torchdata.random draw with replacement");
  }
  if (spec.sampler == "torch.weighted" && (!spec.replaces() || spec.num_samples == 1)) {
    return plan_error(
        spec.replaces() ? "num_samples" : "replacement", spec.replaces() ? "1" : "false",
        "torch.weighted then draws from exponential_(), which differs between builds and cannot be "
        "predicted; record the order and give it with sampler=list list=FILE");
  }
  return {};
}

// interleave() opens files, and opens them all itself.
Status check_interleave(const PlanSpec& spec) {
  if (spec.cycle_length == 0) return {};
  const std::string value = std::to_string(spec.cycle_length);
  if (!spec.sampler.starts_with("tf.") && !spec.reads_streams()) {
    return plan_error("cycle_length", value,
                      "files are read at once where they are read from front to back; want format=tfrecord "
                      "or format=shards");
  }
  if (spec.workers != 0 && spec.reads_streams()) {
    return plan_error("workers", std::to_string(spec.workers),
                      "the files are dealt either to workers or by interleave(); want no workers beside "
                      "cycle_length=" +
                          value);
  }
  return {};
}

// DALI's file reader opens samples that are files in the order of its list. Its other readers go through the
// records as they lie, whatever is shuffled: random_shuffle draws from a buffer of records that were read.
// Source: NVIDIA/DALI, dali/operators/reader/loader/{loader,indexed_file_loader,lmdb}.h,
// webdataset_loader.cc.
bool dali_reads_records(const PlanSpec& spec) {
  constexpr std::string_view kOfFiles[] = {"", "imagefolder", "timm", "files", "list"};
  return spec.sampler == "dali" && !contains(kOfFiles, spec.format);
}

Status check_dali(const PlanSpec& spec) {
  if (!dali_reads_records(spec)) return {};
  if (spec.shuffle_after_epoch) {
    return plan_error(
        "shuffle_after_epoch", "true",
        "only DALI's file reader, to which each sample is a file, shuffles as predicted; want the "
        "order of the records as sampler=list list=FILE");
  }
  if (!spec.reads_streams()) return {};
  if (spec.world > 1) {
    return plan_error(
        "world", std::to_string(spec.world),
        "DALI deals records among its shards, which may begin within a file; want format=tar or "
        "tfrecord and random_access=true");
  }
  if (spec.workers != 0) {
    return plan_error("workers", std::to_string(spec.workers),
                      "DALI's reader goes through one file after the other; want no workers");
  }
  return {};
}

// Of records random_shuffle changes nothing that is read, if they are copied when they are read. The reader
// of LMDB always does.
Status settle_dali(const PlanPairs& arguments, PlanSpec& spec) {
  if (!dali_reads_records(spec) || !spec.random_shuffle) return {};
  const auto copies = [](const auto& argument) {
    bool flag = false;
    return argument.first == "dont_use_mmap" && parse_flag(argument.second, flag) && flag;
  };
  if (spec.format != "lmdb" && std::ranges::none_of(arguments, copies)) {
    return plan_error("random_shuffle", "true",
                      "DALI maps the files and touches records when they leave its buffer, in an order that "
                      "is not predicted; want dont_use_mmap=true, in the script and here");
  }
  spec.random_shuffle = false;
  return {};
}

// A key that its sampler needs, and that no other takes.
Status check_belongs(std::string_view key, const std::string& value, std::string_view sampler,
                     const PlanSpec& spec) {
  if (spec.sampler == sampler && value.empty()) {
    return plan_error(key, "", fmt::format("missing: sampler={} needs it", sampler));
  }
  if (spec.sampler != sampler && !value.empty()) {
    return plan_error(key, value, fmt::format("belongs to sampler={}, not to {}", sampler, spec.sampler));
  }
  return {};
}

Status check_lists(const PlanSpec& spec) {
  if (spec.names_shards() && !spec.file.empty() && spec.list_numbers_samples()) {
    return plan_error("file", spec.file, "want either file or list to say which shards there are");
  }
  if (spec.list_numbers_samples() && spec.list.empty()) {
    return plan_error("list", "",
                      fmt::format("missing: format={} needs list=FILE with one {} a line", spec.format,
                                  spec.format == "list" ? "path" : "range"));
  }
  if (!spec.list_numbers_samples()) {
    if (Status status = check_belongs("list", spec.list, "list", spec); !status) return status;
  }
  if (Status status = check_belongs("weights", spec.weights, "torch.weighted", spec); !status) return status;
  return check_belongs("indices", spec.indices, "torch.subset", spec);
}

// Python's None, as in JSON null: the framework's own default. Text may mean it, interleave() then takes as
// many files as the machine has processors, and shuffle=None shuffles with a sampler and not with a loader.
bool is_left_out(const PlanKey& key, const std::string& value) {
  const bool is_text = std::holds_alternative<std::string PlanSpec::*>(key.member) && !key.whole;
  return value == "None" && !is_text && key.name != "cycle_length" && key.name != "shuffle";
}

// A word that only some frameworks have for a key.
struct SamplersWord {
  std::string_view name;
  std::string_view samplers;  // how the names of their samplers begin
  std::string_view key;
};
constexpr SamplersWord kSamplersWords[] = {
    // StreamingDataset.state_dict() has it; elsewhere it is likely a slip for epochs.
    {"epoch", "streaming", "first_epoch"},
    // Elsewhere shards are likely the files that a dataset is in.
    {"num_shards", "tf.", "world"},
    {"num_shards", "dali", "world"},
    {"shard_count", "grain", "world"},
};

bool is_samplers_word(std::string_view name) {
  return std::ranges::find(kSamplersWords, name, &SamplersWord::name) != std::end(kSamplersWords);
}

// The word itself, which is no key, where the sampler's framework has not got it.
std::string key_of_word(std::string_view name, std::string_view sampler) {
  for (const SamplersWord& word : kSamplersWords) {
    if (word.name == name && sampler.starts_with(word.samplers)) return std::string(word.key);
  }
  return std::string(name);
}

// Of a plan that names a file and no format.
std::string format_of_samples(const PlanSpec& spec) {
  if (spec.file == "index.json" || spec.file.ends_with("/index.json")) return "mds";
  if (spec.record != 0) return "raw";
  if (!spec.lmdb_keys.empty()) return "lmdb";
  if (!spec.dataset.empty()) return "hdf5";
  const std::string_view named = format_of_file(spec.file);
  return named.empty() ? "npy" : std::string(named);
}

using GivenKeys = std::set<std::string, std::less<>>;

Status set_pair(const std::string& name, std::string value, PlanSpec& spec, GivenKeys& given) {
  const Result<const PlanKey*> key = find_plan_key(name);
  if (!key) return key.error();
  if (is_left_out(**key, value)) return {};
  if (!given.emplace((*key)->name).second) return plan_error(name, value, "given twice");
  return set_plan_value(**key, std::move(value), spec);
}

// Transformers' Trainer has a seed for its sampler beside the one for everything. It hands it on since
// accelerate 1.1, and without the seedable sampler a loader draws from torch's default generator.
Status set_data_seed(std::string value, PlanSpec& spec, GivenKeys& given) {
  if (spec.sampler != "accelerate" || !given.contains("seed"))
    return set_pair("seed", std::move(value), spec, given);
  if (!given.emplace("data_seed").second) return plan_error("data_seed", value, "given twice");
  constexpr LibraryVersion kHandsItOn{1, 1};
  const bool decides = spec.use_seedable_sampler &&
                       parse_torch_version(spec.accelerate).value_or(kNewestLibrary) >= kHandsItOn;
  return decides ? set_plan_value(*find_plan_key("seed").value(), std::move(value), spec) : Status();
}

// WebDataset's list of shards, which shuffles itself if it gets a seed.
bool is_shard_list(std::string sampler) {
  std::ranges::transform(sampler, sampler.begin(), [](unsigned char c) { return std::tolower(c); });
  return sampler.ends_with("simpleshardlist");
}

}  // namespace

std::span<const std::string_view> plan_formats() {
  return kFormats;
}

std::string_view format_of_file(std::string_view path) {
  struct Ending {
    std::string_view ending;
    std::string_view format;
  };
  constexpr Ending kEndings[] = {{".mdb", "lmdb"},      {".lmdb", "lmdb"},  {".npy", "npy"},
                                 {".bin", "megatron"},  {".h5", "hdf5"},    {".hdf5", "hdf5"},
                                 {".tar", "tar"},       {".tgz", "tar"},    {".tar.gz", "tar"},
                                 {".tar.bz2", "tar"},   {".tar.xz", "tar"}, {".tar.zst", "tar"},
                                 {".tfrec", "tfrecord"}};
  const std::string_view name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0
  for (const Ending& known : kEndings) {
    if (name.ends_with(known.ending)) return known.format;
  }
  return name.find(".tfrecord") == std::string_view::npos ? "" : "tfrecord";  // "x.tfrecords-00000-of-00010"
}

void PlanSpec::move_to(uint64_t epoch) {
  const auto keys = sampler_keys(sampler);
  if (std::ranges::find(keys, "epochs_before") != keys.end()) epochs_before += epoch - first_epoch;
  first_epoch = epoch;
}

bool same_plan(PlanSpec a, const PlanSpec& b) {
  if (a.index.empty() || b.index.empty()) a.index = b.index;
  return a == b;
}

Status validate_plan(const PlanSpec& spec) {
  for (const auto check : {check_format, check_sampler, check_interleave, check_dali, check_lists}) {
    if (Status status = check(spec); !status) return status;
  }
  if (spec.epochs != 0 && spec.first_epoch >= spec.epochs) {
    return plan_error("first_epoch", std::to_string(spec.first_epoch),
                      fmt::format("want less than epochs={}, counted from 0", spec.epochs));
  }
  if (spec.epochs_before > spec.first_epoch) {
    return plan_error("epochs_before", std::to_string(spec.epochs_before),
                      fmt::format("want at most first_epoch={}", spec.first_epoch));
  }
  if (spec.world != 0 && spec.ranks_per_node != 0 && spec.world % spec.ranks_per_node != 0) {
    return plan_error("ranks_per_node", std::to_string(spec.ranks_per_node),
                      fmt::format("want a divisor of world={}", spec.world));
  }
  return {};
}

Result<PlanSpec> make_plan(PlanPairs pairs) {
  PlanSpec spec;
  GivenKeys given;
  PlanPairs arguments;
  PlanPairs words_of_samplers;
  std::vector<std::string> data_seeds;
  bool shard_list = false;
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto [name, value] = std::move(pairs[i]);
    // TFRecordDataset then reads one file after the other, which is no interleave().
    if (name == "num_parallel_reads" && value == "None") continue;
    if (name == "data_seed" && value != "None") {
      data_seeds.push_back(std::move(value));
      continue;
    }
    name = canonical_plan_key(std::move(name));
    shard_list |= name == "sampler" && is_shard_list(value);
    // format=list=FILE and sampler=list=FILE are short for format=list list=FILE.
    if ((name == "format" || name == "sampler") && value.starts_with("list=")) {
      pairs.emplace_back("list", value.substr(5));
      value = "list";
    }
    if (is_argument(name)) {
      arguments.emplace_back(name, value);
      continue;
    }
    if (is_samplers_word(name)) {
      words_of_samplers.emplace_back(name, value);
      continue;
    }
    if (Status status = set_pair(name, std::move(value), spec, given); !status) return status.error();
  }
  for (const auto& [name, value] : words_of_samplers) {
    const std::string key = key_of_word(name, spec.sampler);
    if (Status status = set_pair(key, value, spec, given); !status) return status.error();
  }
  for (std::string& value : data_seeds) {
    if (Status status = set_data_seed(std::move(value), spec, given); !status) return status.error();
  }
  if (shard_list && !spec.seed.empty() && spec.method.empty()) spec.method = "shuffle";
  if (spec.sampler == "torch.subset" && spec.indices.empty() && !spec.list_numbers_samples())
    spec.indices.swap(spec.list);
  const bool of_paths = spec.format == "list" || spec.format == "ranges";
  if (!spec.list.empty() && !given.contains("sampler") && !of_paths) spec.sampler = "list";
  if (spec.format == "mds" && spec.file.empty()) spec.file = "index.json";
  if (!spec.file.empty() && !given.contains("format")) spec.format = format_of_samples(spec);
  for (const auto& [name, value] : arguments) {
    if (Status status = check_argument(name, value, spec.sampler); !status) return status.error();
  }
  if (Status status = settle_dali(arguments, spec); !status) return status.error();
  if (Status status = validate_plan(spec); !status) return status.error();
  return spec;
}

Result<PlanSpec> resolve_plan(PlanSpec spec, uint32_t nodes) {
  if (spec.world == 0) spec.world = nodes * std::max<uint64_t>(spec.ranks_per_node, 1);
  if (spec.ranks_per_node == 0) {
    if (spec.world % nodes != 0) {
      return plan_error(
          "world", std::to_string(spec.world),
          fmt::format("does not divide among {} nodes; want a multiple, or ranks_per_node as well", nodes));
    }
    spec.ranks_per_node = spec.world / nodes;
  }
  // On a single node it may be one of many that know nothing of each other; those of a job know better.
  if (nodes > 1 && spec.world != nodes * spec.ranks_per_node) {
    return plan_error("world", std::to_string(spec.world),
                      fmt::format("this job has {} nodes of ranks_per_node={}; want world={}", nodes,
                                  spec.ranks_per_node, nodes * spec.ranks_per_node));
  }
  if (Status status = validate_plan(spec); !status) return status.error();
  return spec;
}

}  // namespace clairfs
