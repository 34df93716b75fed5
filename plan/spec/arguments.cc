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
bool is_number(const std::string& value) {
  return parse_whole<uint64_t>(value).has_value();
}
bool is_parallelism(const std::string& value) {
  return is_number(value) || value == "-1" || value == "AUTOTUNE" || value == "tf.data.AUTOTUNE";
}
bool is_short_block(const std::string& value) {
  const auto number = parse_whole<uint64_t>(value);
  return number && *number >= 1 && *number <= kMostBlock;
}
bool is_random(const std::string& value) {
  return value == "random";
}
bool never(const std::string&) {
  return false;
}

constexpr std::string_view kNoRank = "a plan is the same for all ranks; want no rank, but world";

constexpr FrameworkArgument kArguments[] = {
    {"in_order", "", is_true,
     "the order in which batches then arrive depends on timing and cannot be predicted; want DataLoader's "
     "in_order=True"},
    {"rank", "", never, kNoRank},
    {"local_rank", "", never, kNoRank},
    {"shard_id", "", never, kNoRank},
    {"resampled", "webdataset", is_false,
     "shards are then drawn with random bytes of the kernel's, which cannot be predicted; want "
     "WebDataset's resampled=False"},
    {"deterministic", "tf.", is_true,
     "the order of elements then depends on timing and cannot be predicted; want deterministic=True"},
    {"num_parallel_calls", "tf.", is_parallelism, "want a number or AUTOTUNE"},
    {"block_length", "tf.", is_short_block,
     "want 1 to 64 records of a file at a time; where a block is a whole file, want cycle_length=1"},
    {"batching_method", "streaming", is_random,
     "only batching_method=random is predicted; record the order and give it with sampler=list list=FILE"},
    {"predownload", "streaming", is_number, "want a number of samples"},
    {"initial_fill", "dali", is_number, "want a number of samples"},
};

}  // namespace

const FrameworkArgument* find_argument(std::string_view name) {
  const auto* const found = std::ranges::find(kArguments, name, &FrameworkArgument::name);
  return found == std::end(kArguments) ? nullptr : found;
}

Status check_argument(const FrameworkArgument& argument, const std::string& value) {
  if (argument.without_effect(value)) return {};
  return plan_error(argument.name, value, argument.want);
}

Status check_argument_of(const FrameworkArgument& argument, const std::string& value,
                         std::string_view sampler) {
  if (sampler.starts_with(argument.samplers)) return {};
  return plan_error(argument.name, value,
                    fmt::format("belongs to sampler={}{}, not to {}", argument.samplers,
                                argument.samplers.ends_with('.') ? "*" : "", sampler));
}

}  // namespace clairfs
