#include "plan/spec/keys.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "cache/base/text.h"
#include "plan/random/torch_random.h"
#include "plan/samplers/sampler.h"
#include "plan/spec/nearest.h"

namespace clairfs {
namespace {

bool all_of(std::string_view text, bool (*allowed)(char)) {
  return std::all_of(text.begin(), text.end(), allowed);
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

bool one_of(const std::string& value, std::initializer_list<std::string_view> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

// A path component of .clairfs and a metric label, so short and plain.
bool accept_name(std::string& value) {
  return !value.empty() && value.size() <= 64 && value[0] != '.' && all_of(value, [](char c) {
    return is_digit(c) || is_letter(c) || c == '_' || c == '-' || c == '.';
  });
}

// The longest path Linux takes is 4096 bytes with its final NUL.
bool accept_path(std::string& value) {
  return !value.empty() && value.size() < 4096;
}

// The value is checked where the format is chosen: unknown ones get their own advice.
bool accept_word(std::string& value) {
  value = lower(value);
  return !value.empty() && value.size() <= 32;
}

bool accept_format(std::string& value) {
  if (!accept_word(value)) return false;
  if (value == "webdataset" || value == "wds") value = "tar";
  if (value == "tfrecords" || value == "tfrecorddataset") value = "tfrecord";
  if (value == "readerimagefolder") value = "timm";
  return true;
}

// Libraries take from 32 bits (numpy.legacy) to any length (numpy.default_rng; 1000 digits are enough for
// all), and some take arrays and strings: those are left to the sampler.
bool accept_seed(std::string& value) {
  if (value.starts_with('[') || value.starts_with("str:")) return value.size() <= 4096;
  const bool negative = value.starts_with('-');
  std::string digits = value.substr(negative ? 1 : 0);
  if (digits.empty() || digits.size() > 1000 || !all_of(digits, is_digit)) return false;
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size() - 1));
  value = (negative && digits != "0" ? "-" : "") + digits;
  return true;
}

bool accept_flag(std::string& value) {
  bool flag = false;
  if (!parse_flag(value, flag)) return false;
  value = flag ? "true" : "false";
  return true;
}

bool accept_drop_last(std::string& value) {
  value = lower(value);
  return accept_flag(value) || one_of(value, {"sampler", "loader"});
}

bool accept_set_epoch(std::string& value) {
  value = lower(value);
  bool flag = false;
  if (parse_flag(value, flag)) value = flag ? "always" : "never";
  return one_of(value, {"always", "never"});
}

bool accept_reseed(std::string& value) {
  return one_of(value = lower(value), {"once", "epoch"});
}
bool accept_method(std::string& value) {
  return one_of(value = lower(value), {"permutation", "shuffle", "sample"});
}
bool accept_generator(std::string& value) {
  return one_of(value = lower(value), {"loader", "sampler", "default"});
}

// torch.__version__ of any build ("2.6.0+cu124", "1.13.0a0"), reduced to the release that decides.
bool accept_version(std::string& value) {
  const auto version = parse_torch_version(value);
  if (version) value = fmt::format("{}.{}", version->major, version->minor);
  return version.has_value();
}

bool accept_base64(std::string& value) {
  const size_t end = value.find_last_not_of('=');
  return !value.empty() && end != std::string::npos && value.size() % 4 == 0 && value.size() - end <= 3 &&
         all_of(std::string_view(value).substr(0, end + 1),
                [](char c) { return is_digit(c) || is_letter(c) || c == '+' || c == '/'; });
}

using Json = nlohmann::json;

// A path, or an array in place whose elements all pass `allowed`, which is stored without white space.
bool accept_array_or_path(std::string& value, bool (*allowed)(const Json&)) {
  if (!value.starts_with('[')) return accept_path(value);
  bool too_deep = false;
  const auto shallow = [&too_deep](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth >= kDeepestJson;
    return !too_deep;
  };
  const Json array = Json::parse(value, shallow, false);
  if (too_deep || !array.is_array() || array.empty() || !std::all_of(array.begin(), array.end(), allowed))
    return false;
  value = array.dump();
  return true;
}

bool is_index(const Json& element) {
  return element.is_number_unsigned() && element.get<uint64_t>() <= UINT32_MAX;
}

bool accept_list(std::string& value) {
  return accept_array_or_path(value, [](const Json& e) { return e.is_string() || is_index(e); });
}

bool accept_indices(std::string& value) {
  return accept_array_or_path(value, is_index);
}

bool accept_weights(std::string& value) {
  return accept_array_or_path(value, [](const Json& e) {
    return e.is_number() && std::isfinite(e.get<double>()) && e.get<double>() >= 0;
  });
}

// Any name of a sampler that a framework uses for it.
bool accept_sampler(std::string& value) {
  value = canonical_sampler(lower(value));
  return !value.empty() && value.size() <= 64;
}

bool accept_shard(std::string& value) {
  return one_of(value = lower(value), {"before", "after", "none"});
}

bool accept_shuffle_algo(std::string& value) {
  return one_of(value = lower(value), {"py1e", "py1s", "py2s", "py1b", "py1br", "naive"});
}

bool accept_split(std::string& value) {
  return !value.empty() && value.size() <= 64 &&
         all_of(value, [](char c) { return is_digit(c) || c == '.' || c == ','; });
}

// Also the words that WebDataset takes for 100 shards and for none.
bool accept_shardshuffle(std::string& value) {
  const std::string word = lower(value);
  if (word == "true") value = "100";
  if (word == "false" || word == "none") value = "0";
  const auto number = parse_whole<uint32_t>(value);
  if (number) value = std::to_string(*number);
  return number.has_value();
}

// Repetitions of a sample, a fraction included: digits with at most one point between them.
bool accept_repeats(std::string& value) {
  const size_t point = value.find('.');
  const std::string whole = value.substr(0, point);
  const std::string part = point == std::string::npos ? "0" : value.substr(point + 1);
  if (whole.empty() || part.empty() || value.size() > 16) return false;
  if (!all_of(whole, is_digit) || !all_of(part, is_digit)) return false;
  return std::strtod(value.c_str(), nullptr) >= 1;
}

bool accept_identity(std::string& value) {
  value = lower(value);
  return value.size() == 16 && all_of(value, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

constexpr bool kShown = true;
// An epoch number and a sample number are 32 bits wide everywhere.
constexpr uint64_t kMost32 = UINT32_MAX - 1;
// No file has more, and sums of two of them fit 64 bits.
constexpr uint64_t kMostBytes = INT64_MAX;
// More than any machine has or any loader takes, few enough that products of two of them fit 64 bits.
constexpr uint64_t kMostRanks = 1 << 20;
constexpr uint64_t kMostLoaderWorkers = 1 << 12;
constexpr uint64_t kMostBatch = 1 << 24;

PlanKey text(std::string_view name, std::string PlanSpec::*member, bool (*accept)(std::string&),
             std::string_view want, bool shown = false) {
  return {name, member, want, shown, accept};
}
PlanKey seed(std::string_view name, std::string PlanSpec::*member, std::string_view want,
             bool shown = false) {
  return {name, member, want, shown, accept_seed, 0, 0, true};
}
PlanKey number(std::string_view name, uint64_t PlanSpec::*member, uint64_t least, uint64_t most,
               std::string_view what, bool shown = false) {
  return {name, member, what, shown, nullptr, least, most};
}
PlanKey yes_or_no(std::string_view name, bool PlanSpec::*member) {
  return {name, member, "want true or false"};
}

const PlanKey kKeys[] = {
    text("name", &PlanSpec::name, accept_name, "want up to 64 letters, digits, '-', '_' and '.'", kShown),
    text("root", &PlanSpec::root, accept_path, "want a folder of the dataset, such as train"),
    text("format", &PlanSpec::format, accept_format, "want a format such as imagefolder, lmdb or tar",
         kShown),
    text("file", &PlanSpec::file, accept_path, "want a path below root, such as train.npy"),
    text("list", &PlanSpec::list, accept_list,
         "want a file, or an array of indices or paths such as [3,1,2]"),
    number("record", &PlanSpec::record, 1, kMostBytes, "bytes of a sample"),
    number("header", &PlanSpec::header, 0, kMostBytes, "bytes before the first sample"),
    number("stride", &PlanSpec::stride, 1, kMostBytes, "bytes from one sample to the next"),
    text("dataset", &PlanSpec::dataset, accept_path, "want names of datasets, such as /images,/labels"),
    text("keys", &PlanSpec::lmdb_keys, accept_path,
         "want cursor, decimal, patterns such as image-%09d, or a file that lists the keys"),
    text("skip", &PlanSpec::skip, accept_path, "want keys that are no samples, such as meta*,info"),
    text("db", &PlanSpec::db, accept_path, "want the name of a database in the file"),
    number("sequence_length", &PlanSpec::sequence_length, 1, kMostBatch, "tokens of a GPT sample"),
    number("train_samples", &PlanSpec::train_samples, 1, kMost32, "samples that training asks for"),
    text("split", &PlanSpec::split, accept_split,
         "want Megatron's parts such as 969,30,1; StreamingDataset's split is a folder of root=FOLDER/SPLIT"),
    text("cache", &PlanSpec::cache, accept_path, "want the folder of Megatron's saved indexes"),
    yes_or_no("random_access", &PlanSpec::random_access),
    yes_or_no("allow_empty", &PlanSpec::allow_empty),
    number("n", &PlanSpec::n, 1, kMost32, "samples of the dataset"),
    text("index", &PlanSpec::index, accept_identity, "want 16 hexadecimal digits, as a plan shows them"),
    text("sampler", &PlanSpec::sampler, accept_sampler, "want a sampler such as torch.distributed", kShown),
    seed("seed", &PlanSpec::seed, "want a whole number, the seed the script gives its sampler", kShown),
    seed("dataset_shuffle", &PlanSpec::dataset_shuffle,
         "want a whole number, the seed of the dataset's own .shuffle()"),
    yes_or_no("shuffle", &PlanSpec::shuffle),
    text("drop_last", &PlanSpec::drop_last, accept_drop_last,
         "want true or false, or sampler or loader if only one of them drops"),
    text("replacement", &PlanSpec::replacement, accept_flag, "want true or false"),
    number("num_samples", &PlanSpec::num_samples, 1, kMost32, "samples drawn an epoch"),
    text("set_epoch", &PlanSpec::set_epoch, accept_set_epoch,
         "want always or never: does the script call sampler.set_epoch()?"),
    text("reseed", &PlanSpec::reseed, accept_reseed, "want once or epoch"),
    text("method", &PlanSpec::method, accept_method, "want permutation, shuffle or sample"),
    text("generator", &PlanSpec::generator, accept_generator,
         "want loader, sampler or default: which of torch's generators has the seed"),
    yes_or_no("random_shuffle", &PlanSpec::random_shuffle),
    yes_or_no("shuffle_after_epoch", &PlanSpec::shuffle_after_epoch),
    yes_or_no("stick_to_shard", &PlanSpec::stick_to_shard),
    yes_or_no("checkpointing", &PlanSpec::checkpointing),
    number("epochs_before", &PlanSpec::epochs_before, 0, kMost32,
           "epochs that the reading process has had before first_epoch"),
    yes_or_no("persistent_workers", &PlanSpec::persistent_workers),
    number("draws", &PlanSpec::draws, 0, kMost32,
           "32-bit numbers that others draw from the generator before the first epoch"),
    number("other_draws", &PlanSpec::other_draws, 0, kMost32,
           "32-bit numbers that others draw from the generator between two epochs"),
    text("torch", &PlanSpec::torch, accept_version, "want torch.__version__, such as 2.6 or 1.13.1"),
    text("torchdata", &PlanSpec::torchdata, accept_version, "want torchdata.__version__, such as 0.11"),
    text("accelerate", &PlanSpec::accelerate, accept_version, "want accelerate.__version__, such as 1.8"),
    yes_or_no("use_seedable_sampler", &PlanSpec::use_seedable_sampler),
    yes_or_no("even_batches", &PlanSpec::even_batches),
    yes_or_no("split_batches", &PlanSpec::split_batches),
    yes_or_no("dispatch_batches", &PlanSpec::dispatch_batches),
    number("block", &PlanSpec::block, 1, kMostBatch, "consecutive samples of a rank"),
    text("num_repeats", &PlanSpec::num_repeats, accept_repeats, "want a number from 1 on, such as 3 or 1.5"),
    number("selected_round", &PlanSpec::selected_round, 0, kMost32, "samples, rounded down to"),
    number("selected_ratio", &PlanSpec::selected_ratio, 0, kMostRanks,
           "the ranks are counted as; 0 = as many as there are"),
    yes_or_no("data_sharding", &PlanSpec::data_sharding),
    number("buffer_size", &PlanSpec::buffer_size, 1, kMost32, "samples in the shuffle's buffer"),
    seed("global_seed", &PlanSpec::global_seed, "want a whole number, as given to tf.random.set_seed()"),
    yes_or_no("reshuffle_each_iteration", &PlanSpec::reshuffle_each_iteration),
    text("shard", &PlanSpec::shard, accept_shard,
         "want before, after or none: where .shard(), or the split by node and worker, stands"),
    number("cycle_length", &PlanSpec::cycle_length, 1, kMostLoaderWorkers,
           "files read at once; of AUTOTUNE as many as the machine has processors"),
    text("shardshuffle", &PlanSpec::shardshuffle, accept_shardshuffle, "want a number of shards, 0 for none"),
    number("initial", &PlanSpec::initial, 1, kMost32, "shards in the buffer before one leaves it"),
    yes_or_no("detshuffle", &PlanSpec::detshuffle),
    text("shard_sizes", &PlanSpec::shard_sizes, accept_indices,
         "want the dataset's index.json, a file, or an array of the shards' samples such as [100,100,57]"),
    text("shuffle_algo", &PlanSpec::shuffle_algo, accept_shuffle_algo,
         "want py1e, py1s, py2s, py1b, py1br or naive"),
    number("shuffle_block_size", &PlanSpec::shuffle_block_size, 4, INT32_MAX, "samples"),
    number("num_canonical_nodes", &PlanSpec::num_canonical_nodes, 1, kMostRanks, "nodes"),
    number("initial_physical_nodes", &PlanSpec::initial_physical_nodes, 1, kMostRanks, "nodes"),
    number("sample_in_epoch", &PlanSpec::sample_in_epoch, 0, kMost32, "samples that the job has seen"),
    text("state", &PlanSpec::state, accept_base64, "want base64 of the bytes of torch.Generator.get_state()"),
    number("gcc", &PlanSpec::gcc, 4, 99, "major version of the compiler"),
    text("weights", &PlanSpec::weights, accept_weights,
         "want a file, or an array of numbers such as [0.5,1,2]"),
    text("indices", &PlanSpec::indices, accept_indices,
         "want a file, or an array of indices such as [3,1,2]"),
    number("epochs", &PlanSpec::epochs, 0, kMost32, "0 = until cancelled", kShown),
    number("first_epoch", &PlanSpec::first_epoch, 0, kMost32, "counted from 0"),
    number("start_sample", &PlanSpec::start_sample, 0, kMost32, "samples a rank already has"),
    number("world", &PlanSpec::world, 1, kMostRanks, "training ranks of the job", kShown),
    number("ranks_per_node", &PlanSpec::ranks_per_node, 1, kMostRanks, "training ranks on a node", kShown),
    number("batch", &PlanSpec::batch, 1, kMostBatch, "samples a rank takes a step", kShown),
    number("workers", &PlanSpec::workers, 0, kMostLoaderWorkers, "DataLoader workers a rank", kShown),
    number("prefetch_factor", &PlanSpec::prefetch_factor, 1, kMostLoaderWorkers,
           "batches in flight a worker"),
};

struct OtherKey {
  std::string_view name;
  std::string_view key;
};

// Arguments as the frameworks write them.
constexpr OtherKey kOtherKeys[] = {
    {"batch_size", "batch"},
    {"micro_batch_size", "batch"},
    {"num_workers", "workers"},
    {"num_replicas", "world"},
    {"world_size", "world"},
    {"num_processes", "world"},
    {"data_seed", "seed"},
    {"shuffle_seed", "seed"},
    {"op_seed", "seed"},
    {"repetitions", "num_repeats"},
    {"num_aug_repeats", "num_repeats"},
    {"aug_repeats", "num_repeats"},
    {"num_records", "n"},
    {"total_samples", "n"},
    {"worker_count", "workers"},
    {"num_parallel_reads", "cycle_length"},
    {"interleave_cycle_length", "cycle_length"},
    {"shuffle_files", "shuffle"},
    {"shuffle_reshuffle_each_iteration", "reshuffle_each_iteration"},
    {"enable_checkpointing", "checkpointing"},
    {"seq_length", "sequence_length"},
    {"drop_remainder", "drop_last"},
    {"num_epochs", "epochs"},
    {"max_epochs", "epochs"},
    {"start_epoch", "first_epoch"},
    {"manual_seed", "seed"},
    {"nproc_per_node", "ranks_per_node"},
    {"local_world_size", "ranks_per_node"},
    {"per_device_train_batch_size", "batch"},
    {"dataloader_num_workers", "workers"},
    {"dataloader_prefetch_factor", "prefetch_factor"},
    {"dataloader_drop_last", "drop_last"},
    {"dataloader_persistent_workers", "persistent_workers"},
    {"num_train_epochs", "epochs"},
    {"data_parallel_size", "world"},
};

}  // namespace

bool parse_flag(const std::string& text, bool& flag) {
  const std::string value = lower(text);
  flag = one_of(value, {"true", "1", "yes", "on"});
  return flag || one_of(value, {"false", "0", "no", "off"});
}

std::string canonical_plan_key(std::string name) {
  const auto* const other = std::find_if(std::begin(kOtherKeys), std::end(kOtherKeys),
                                         [&](const OtherKey& k) { return k.name == name; });
  return other == std::end(kOtherKeys) ? name : std::string(other->key);
}

std::span<const PlanKey> plan_keys() {
  return kKeys;
}

Result<const PlanKey*> find_plan_key(std::string_view name) {
  const auto key =
      std::find_if(std::begin(kKeys), std::end(kKeys), [&](const PlanKey& k) { return k.name == name; });
  if (key != std::end(kKeys)) return key;
  std::vector<std::string_view> names;
  for (const PlanKey& k : kKeys) names.push_back(k.name);
  const std::string meant = nearest_word(name, names);
  Error error = plan_error(name, "", "unknown key");
  error.message +=
      meant.empty() ? fmt::format("; the keys are {}", fmt::join(names, " ")) : did_you_mean(meant);
  return error;
}

Status set_plan_value(const PlanKey& key, std::string value, PlanSpec& spec) {
  const Error refused = plan_error(key.name, value, key.want);
  if (const auto* member = std::get_if<std::string PlanSpec::*>(&key.member)) {
    if (!key.accept(value)) return refused;
    spec.*(*member) = std::move(value);
    return {};
  }
  if (const auto* member = std::get_if<bool PlanSpec::*>(&key.member)) {
    return parse_flag(value, spec.*(*member)) ? Status() : refused;
  }
  std::string_view whole = value;
  if (whole.ends_with(".0")) whole.remove_suffix(2);  // of a float, as Trainer's num_train_epochs=3.0 is
  const auto parsed = parse_whole<uint64_t>(whole);
  if (!parsed || *parsed < key.least || *parsed > key.most) {
    return plan_error(key.name, value,
                      fmt::format("want a whole number from {} to {} ({})", key.least, key.most, key.want));
  }
  spec.*std::get<uint64_t PlanSpec::*>(key.member) = *parsed;
  return {};
}

std::string plan_value(const PlanKey& key, const PlanSpec& spec) {
  if (const auto* member = std::get_if<std::string PlanSpec::*>(&key.member)) return spec.*(*member);
  if (const auto* member = std::get_if<bool PlanSpec::*>(&key.member))
    return spec.*(*member) ? "true" : "false";
  const uint64_t value = spec.*std::get<uint64_t PlanSpec::*>(key.member);
  return value < key.least ? "" : std::to_string(value);
}

bool plan_value_shown(const PlanKey& key, const PlanSpec& spec) {
  static const PlanSpec defaults;
  const std::string value = plan_value(key, spec);
  return !value.empty() && (key.shown || value != plan_value(key, defaults));
}

std::string shortened(std::string_view text, size_t most) {
  return escaped(text.substr(0, most)) + (text.size() > most ? "..." : "");
}

Error plan_error(std::string_view key, std::string_view seen, std::string_view want) {
  return {EINVAL, fmt::format("plan: {}{}{}: {}", shortened(key, 32), seen.empty() ? "" : "=",
                              shortened(seen, 64), want)};
}

}  // namespace clairfs
