#include "plan/spec/arguments.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/spec/keys.h"

namespace clairfs {
namespace {

// A slot's records at a time that are nothing beside a shard.
constexpr uint64_t kMostBlock = 64;

struct Argument {
  std::string_view name;
  std::string_view samplers;  // how the names of the samplers begin whose argument it is; empty: all
  bool (*without_effect)(const std::string& value);  // the values that change nothing
  std::string_view want;                             // why another is refused, and what would be right
};

bool is_flag(const std::string& value, bool wanted) {
  bool flag = false;
  return parse_flag(value, flag) && flag == wanted;
}
bool is_true(const std::string& value) {
  return is_flag(value, true);
}
bool is_false(const std::string& value) {
  return is_flag(value, false);
}
bool is_any_flag(const std::string& value) {
  return is_flag(value, true) || is_flag(value, false);
}
bool is_number(const std::string& value) {
  return parse_whole<uint64_t>(value).has_value();
}
// Also with a fraction, or a unit such as 100gb.
bool is_amount(const std::string& value) {
  return !value.empty() && value[0] >= '0' && value[0] <= '9';
}
bool is_any(const std::string&) {
  return true;
}
bool is_zero(const std::string& value) {
  return value == "0" || value == "0.0";
}
bool is_one(const std::string& value) {
  return value == "1" || value == "1.0";
}
bool is_size_or_none(const std::string& value) {
  return is_number(value) || value == "-1";
}
bool is_parallelism(const std::string& value) {
  return is_number(value) || value == "-1" || value == "AUTOTUNE" || value == "tf.data.AUTOTUNE";
}
bool is_short_block(const std::string& value) {
  const auto number = parse_whole<uint64_t>(value);
  return number && *number >= 1 && *number <= kMostBlock;  // interleave()'s own is 1
}
bool is_random(const std::string& value) {
  return value == "random";
}
// Without WebDataset's own modules: "wds.split_by_node", "webdataset.shardlists.split_by_node". A function of
// that name in another module may deal in another way.
std::string_view own_function(std::string_view value) {
  const std::string_view package = value.substr(0, value.find('.'));
  const bool own = package == "wds" || package == "webdataset" || package == "shardlists";
  return own ? value.substr(value.rfind('.') + 1) : value;  // npos + 1 is 0
}
bool is_split_by_node(const std::string& value) {
  const std::string_view name = own_function(value);
  return name == "split_by_node" || name == "single_node_only";
}
bool is_split_by_worker(const std::string& value) {
  return own_function(value) == "split_by_worker";
}
bool is_partition(const std::string& value) {
  return value == "relaxed" || value == "orig";
}
bool is_sampling_method(const std::string& value) {
  return value == "balanced" || value == "fixed";
}
bool never(const std::string&) {
  return false;
}

constexpr std::string_view kNoRank = "a plan is the same for all ranks; want no rank, but world";
constexpr std::string_view kShortBlock =
    "want 1 to 64 records of a file at a time; where a block is a whole file, want cycle_length=1";
constexpr std::string_view kProportions =
    "only streams all of whose samples come once an epoch are predicted; record the order and give it with "
    "sampler=list list=FILE";
constexpr std::string_view kFolders =
    "the folder on the mount is root=; want format=mds where it is local=, and format=shards with a pattern "
    "of the shards as file= where it is remote=";

constexpr Argument kArguments[] = {
    {"in_order", "", is_true,
     "the order in which batches then arrive depends on timing and cannot be predicted; want DataLoader's "
     "in_order=True"},
    {"rank", "", never, kNoRank},
    {"local_rank", "", never, kNoRank},
    {"shard_id", "", never, kNoRank},
    {"shard_index", "", never, kNoRank},
    {"data_parallel_rank", "", never, kNoRank},
    {"resampled", "webdataset", is_false,
     "shards are then drawn with random bytes of the kernel's, which cannot be predicted; want "
     "WebDataset's resampled=False"},
    {"nodesplitter", "webdataset", is_split_by_node,
     "shards are then dealt otherwise, or not at all; want split_by_node, or the order as sampler=list "
     "list=FILE"},
    {"workersplitter", "webdataset", is_split_by_worker,
     "shards are then dealt otherwise, or not at all; want split_by_worker, or the order as sampler=list "
     "list=FILE"},
    {"repeat", "webdataset", is_false,
     "workers then live on from pass to pass, each of which is an epoch of the plan; want "
     "persistent_workers=true instead"},
    {"empty_check", "webdataset", is_any_flag, "want true or false"},
    {"bufsize", "webdataset", is_number, "want a number of bytes"},
    // Shards that have a path are not cached: src/webdataset/cache.py (get_file).
    {"cache_dir", "webdataset", is_any, ""},
    {"cache_size", "webdataset", is_size_or_none, "want a number of bytes, or -1"},
    {"deterministic", "tf.", is_true,
     "the order of elements then depends on timing and cannot be predicted; want deterministic=True"},
    {"num_parallel_calls", "tf.", is_parallelism, "want a number or AUTOTUNE"},
    {"block_length", "tf.", is_short_block, kShortBlock},
    {"interleave_block_length", "tf.", is_short_block, kShortBlock},
    {"batching_method", "streaming", is_random,
     "only batching_method=random is predicted; record the order and give it with sampler=list list=FILE"},
    {"predownload", "streaming", is_number, "want a number of samples"},
    {"partition_algo", "streaming", is_partition, "want relaxed or orig"},
    {"sampling_method", "streaming", is_sampling_method, "want balanced or fixed"},
    {"sampling_granularity", "streaming", is_number, "want a number of samples"},
    {"proportion", "streaming", never, kProportions},
    {"repeat", "streaming", is_one, kProportions},
    {"choose", "streaming", never, kProportions},
    {"epoch_size", "streaming", never, kProportions},
    {"replication", "streaming", is_one,
     "ranks that get the same samples are not predicted; record the order and give it with sampler=list "
     "list=FILE"},
    {"local", "streaming", never, kFolders},
    {"remote", "streaming", never, kFolders},
    {"download_retry", "streaming", is_number, "want a number"},
    {"download_timeout", "streaming", is_amount, "want a number of seconds"},
    {"keep_zip", "streaming", is_any_flag, "want true or false"},
    // Of copies, which are checked when they are made: streaming/base/stream.py (_prepare_shard_part).
    {"validate_hash", "streaming", is_any, ""},
    // Copies that are dropped for it and made again come after those that are planned.
    {"cache_limit", "streaming", is_amount, "want a number of bytes, or text such as 100gb"},
    {"allow_unsafe_types", "streaming", is_any_flag, "want true or false"},
    {"worker_buffer_size", "grain", is_number, "want a number of batches"},
    {"group_by_length", "accelerate", is_false,
     "samples are then sorted by their lengths, which clairfs does not know; plan the loader with "
     "clairfs.register()"},
    {"use_distributed_sampler", "lightning", is_true,
     "Lightning then replaces no sampler; want the loader's own"},
    {"replace_sampler_ddp", "lightning", is_true,
     "Lightning then replaces no sampler; want the loader's own"},
    {"overfit_batches", "lightning", is_zero,
     "the same few batches then come each epoch; record their order and give it with sampler=list list=FILE"},
    {"consumed_samples", "megatron.", is_zero,
     "want the epochs that they make up as first_epoch, and the rest divided by world as start_sample"},
    {"initial_fill", "dali", is_number, "want a number of samples"},
    {"prefetch_queue_depth", "dali", is_number, "want a number of batches"},
    {"read_ahead", "dali", is_any_flag, "want true or false"},
    {"dont_use_mmap", "dali", is_any_flag, "want true or false"},
    // The last sample again, which is not read again: dali/operators/reader/loader/loader.h (ReadOne).
    {"pad_last_batch", "dali", is_any_flag, "want true or false"},
    {"lazy_init", "dali", is_any_flag, "want true or false"},
    {"skip_cached_images", "dali", is_false,
     "images that the decoder has in its cache are then not read, and which these are cannot be predicted"},
};

// None is False to the framework, or no split: not the same as none at all.
constexpr std::string_view kNoneMatters[] = {"in_order", "nodesplitter", "workersplitter",
                                             "use_distributed_sampler", "replace_sampler_ddp"};

bool is_not_given(std::string_view name, const std::string& value) {
  return value == "None" && std::ranges::find(kNoneMatters, name) == std::end(kNoneMatters);
}

std::string shown_sampler(std::string_view prefix) {
  return std::string(prefix) + (prefix.ends_with('.') ? "*" : "");
}

}  // namespace

bool is_argument(std::string_view name) {
  return std::ranges::find(kArguments, name, &Argument::name) != std::end(kArguments);
}

Status check_argument(std::string_view name, const std::string& value, std::string_view sampler) {
  if (is_not_given(name, value)) return {};
  std::string owners;
  for (const Argument& argument : kArguments) {
    if (argument.name != name) continue;
    if (sampler.starts_with(argument.samplers)) {
      return argument.without_effect(value) ? Status() : plan_error(name, value, argument.want);
    }
    owners += (owners.empty() ? "" : " or ") + shown_sampler(argument.samplers);
  }
  return plan_error(name, value, fmt::format("belongs to sampler={}, not to {}", owners, sampler));
}

}  // namespace clairfs
